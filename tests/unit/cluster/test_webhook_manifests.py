"""The webhook configurations: failure policies, and every kind that has rules."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.cluster import crds, webhook_manifests
from livevirt.cluster.webhook_manifests import LAUNCHER_PREFIX, Endpoint
from livevirt.kube.objects.kind import Kind
from livevirt.vm import kinds
from livevirt.vm.admission import RULES
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.volumes import attachment_pods

SERVICE, LOOPBACK = Endpoint(), Endpoint("https://127.0.0.1:9443/")


def webhooks(endpoint: Endpoint = SERVICE) -> dict[str, dict[str, Any]]:
    found = [
        each
        for configuration in (
            webhook_manifests.mutating_configuration(endpoint),
            webhook_manifests.validating_configuration(endpoint),
        )
        for each in configuration["webhooks"]
    ]
    return {each["name"].partition(".")[0]: each for each in found}


def test_what_refuses_or_changes_writes_fails_closed_and_warnings_fail_open() -> None:
    policies = {name: each["failurePolicy"] for name, each in webhooks().items()}
    assert policies.pop("warn") == "Ignore"
    assert policies == dict.fromkeys(("default", "validate", "evict", "detach"), "Fail")


def test_only_evictions_have_side_effects_and_none_in_a_dry_run() -> None:
    effects = {name: each["sideEffects"] for name, each in webhooks().items()}
    assert effects.pop("evict") == "NoneOnDryRun"
    assert set(effects.values()) == {"None"}


@pytest.mark.parametrize("webhook", ["validate", "warn"])
@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.resource)
def test_every_kind_with_rules_is_sent_in_every_version(kind: Kind, webhook: str) -> None:
    assert kind.resource in RULES
    [rule] = [each for each in webhooks()[webhook]["rules"] if each["resources"] == [kind.plural]]
    assert rule["apiGroups"] == [kind.group]
    assert set(rule["apiVersions"]) == set(kind.versions)
    assert set(rule["operations"]) == {"CREATE", "UPDATE"}


def test_the_webhook_for_deletions_sees_attachment_pods_only() -> None:
    webhook = webhooks()["detach"]
    assert webhook["objectSelector"]["matchLabels"] == {"kubevirt.io": "hotplug-disk"}
    [rule] = webhook["rules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["DELETE"])
    assert attachment_pods.PREFIX in webhook["matchConditions"][0]["expression"]


def test_the_webhook_for_evictions_sees_pods_of_guests_only() -> None:
    [condition] = webhooks()["evict"]["matchConditions"]
    assert LAUNCHER_PREFIX in condition["expression"]
    assert attachment_pods.PREFIX in condition["expression"]
    name = launcher.pod_name({"metadata": {"name": "web", "namespace": "default", "uid": "u"}})
    assert name.startswith(LAUNCHER_PREFIX)


def test_given_no_url_then_the_service_is_called() -> None:
    service, *_ = webhook_manifests.manifests(SERVICE)
    assert service["kind"] == "Service"
    for each in webhooks().values():
        reference = each["clientConfig"]["service"]
        assert reference["name"] == service["metadata"]["name"]
        assert reference["namespace"] == service["metadata"]["namespace"]
        assert reference["port"] == service["spec"]["ports"][0]["port"]


def test_given_a_url_then_it_is_called_and_no_service_is_made() -> None:
    kinds_made = [each["kind"] for each in webhook_manifests.manifests(LOOPBACK)]
    assert "Service" not in kinds_made
    assert webhooks(LOOPBACK)["warn"]["clientConfig"] == {"url": "https://127.0.0.1:9443/warn"}


def test_only_kinds_whose_versions_differ_are_converted_by_the_webhook() -> None:
    definitions = {each["metadata"]["name"]: each for each in crds.definitions(LOOPBACK)}
    assert set(definitions) == {kind.resource for kind in kinds.KINDS}
    converted = {
        name
        for name, each in definitions.items()
        if each["spec"]["conversion"]["strategy"] == "Webhook"
    }
    assert converted == {kinds.INSTANCETYPE.resource, kinds.CLUSTER_INSTANCETYPE.resource}
    webhook = definitions[kinds.INSTANCETYPE.resource]["spec"]["conversion"]["webhook"]
    assert webhook["clientConfig"] == {"url": "https://127.0.0.1:9443/convert"}
