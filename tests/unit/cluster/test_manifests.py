"""What `livevirt install` applies fits together, with separate components and with all in one."""

from __future__ import annotations

from typing import Any

import click
import pytest

from livevirt.cli.livevirt import cli
from livevirt.cluster import manifests, rbac
from livevirt.cluster.manifests import InstallOptions
from livevirt.kube.objects.request import Object

SHAPES = {"separate": InstallOptions(), "all in one": InstallOptions(all_in_one=True)}
shapes = pytest.mark.parametrize("options", SHAPES.values(), ids=SHAPES)


def of_kind(options: InstallOptions, kind: str) -> list[Object]:
    return [each for each in manifests.control_plane(options) if each["kind"] == kind]


def pods(options: InstallOptions) -> list[Object]:
    return [each["spec"]["template"] for each in of_kind(options, "Deployment")]


def selected(options: InstallOptions, selector: dict[str, str]) -> list[Object]:
    return [
        each for each in pods(options) if selector.items() <= each["metadata"]["labels"].items()
    ]


def container_ports(pod: Object) -> set[int]:
    [container] = pod["spec"]["containers"]
    return {each["containerPort"] for each in container["ports"]}


@shapes
def test_given_a_service_then_it_leads_to_a_port_of_one_deployment(options: InstallOptions) -> None:
    services = of_kind(options, "Service")
    assert len(services) == 2
    for service in services:
        [pod] = selected(options, service["spec"]["selector"])
        assert {each["targetPort"] for each in service["spec"]["ports"]} <= container_ports(pod)


@shapes
def test_given_a_network_policy_then_it_opens_the_ports_of_its_pods(
    options: InstallOptions,
) -> None:
    for policy in of_kind(options, "NetworkPolicy"):
        [pod] = selected(options, policy["spec"]["podSelector"]["matchLabels"])
        [rule] = policy["spec"]["ingress"]
        assert {each["port"] for each in rule["ports"]} == container_ports(pod)


@shapes
def test_given_a_deployment_then_its_command_and_account_exist(options: InstallOptions) -> None:
    accounts = {each["metadata"]["name"] for each in of_kind(options, "ServiceAccount")}
    for pod in pods(options):
        assert pod["spec"]["serviceAccountName"] in accounts
        [container] = pod["spec"]["containers"]
        program, command, *flags = container["command"]
        assert program == "livevirt"
        found = cli.get_command(click.Context(cli), command)
        assert found is not None
        found.make_context(command, flags)


@shapes
def test_given_pods_that_kube_apiserver_calls_then_they_serve_on_when_asked_to_end(
    options: InstallOptions,
) -> None:
    for service in of_kind(options, "Service"):
        [pod] = selected(options, service["spec"]["selector"])
        [container] = pod["spec"]["containers"]
        waits = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert 0 < waits < pod["spec"]["terminationGracePeriodSeconds"]


def granted(options: InstallOptions) -> set[tuple[Any, ...]]:
    return {
        (role["metadata"].get("namespace"), group, resource, verb, *rule.get("resourceNames", ()))
        for kind in ("Role", "ClusterRole")
        for role in of_kind(options, kind)
        if role["metadata"]["name"].startswith("livevirt-")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_given_all_in_one_then_its_account_may_do_what_the_components_may() -> None:
    assert granted(SHAPES["all in one"]) == granted(SHAPES["separate"])
    bindings = of_kind(SHAPES["all in one"], "RoleBinding")
    assert {each["roleRef"]["name"] for each in bindings} == {
        rbac.CONTROLLER.name, rbac.NODE.name, *(role for _, role in rbac.API.existing_roles)
    }  # fmt: skip
