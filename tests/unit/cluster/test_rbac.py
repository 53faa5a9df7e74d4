"""Permissions of components and roles of users."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from livevirt.cluster import manifests, rbac
from livevirt.cluster.manifests import InstallOptions
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.node_share import Share
from livevirt.kube.objects.request import Object, User
from livevirt.kube.objects.review import Review
from livevirt.vm import admission, kinds
from livevirt.vm.config.settings import NAMESPACE
from livevirt.vm.kinds.subresources import SUBRESOURCES
from livevirt.vm.lifecycle.vm import live_update

from ...api.examples import EXAMPLES

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)

APPLIED = manifests.control_plane(InstallOptions())
ROLES = [each for each in APPLIED if each["kind"] in ("Role", "ClusterRole")]


def rules() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for role in ROLES:
        for rule in role["rules"]:
            yield role, rule


def test_given_any_role_then_it_has_no_wildcard() -> None:
    for role, rule in rules():
        values = [each for values in rule.values() for each in values]
        assert not [each for each in values if "*" in each], role["metadata"]["name"]


def test_given_any_role_then_only_secrets_of_our_own_namespace_are_granted() -> None:
    for role, rule in rules():
        if "secrets" in rule["resources"]:
            assert role["metadata"]["namespace"] == NAMESPACE
            assert set(rule["verbs"]) <= {"create"} or rule["resourceNames"]


def test_given_any_role_then_nobody_can_extend_their_own_permissions() -> None:
    for role, rule in rules():
        assert not {"escalate", "bind", "impersonate"}.intersection(rule["verbs"]), role
        assert "rbac.authorization.k8s.io" not in rule["apiGroups"], role
        if "serviceaccounts/token" in rule["resources"]:  # of the component's own account only
            assert rule["resourceNames"] == [role["metadata"]["name"]], role
            assert (rule["verbs"], role["metadata"]["namespace"]) == (["create"], NAMESPACE), role
        assert "pods/exec" not in rule["resources"], role


def test_given_the_bindings_then_none_grants_cluster_admin() -> None:
    bindings = [each for each in APPLIED if each["kind"].endswith("Binding")]
    ours = {role["metadata"]["name"] for role in ROLES}
    existing = {role for component in rbac.COMPONENTS for _, role in component.existing_roles}
    assert {each["roleRef"]["name"] for each in bindings} <= ours | existing


def test_given_a_component_then_its_pods_run_as_its_own_account() -> None:
    workloads = [each for each in APPLIED if each["kind"] in ("Deployment", "DaemonSet")]
    accounts = [each["spec"]["template"]["spec"]["serviceAccountName"] for each in workloads]
    assert accounts == [component.name for component in rbac.COMPONENTS]


def granted(rules: tuple[rbac.Rule, ...]) -> set[tuple[str, str, str]]:
    return {
        (rule.group, resource, verb)
        for rule in rules
        for resource in rule.resources
        for verb in rule.verbs
    }


def test_given_the_roles_of_users_then_each_includes_the_one_below() -> None:
    view, edit, admin = map(granted, (rbac.VIEW_RULES, rbac.EDIT_RULES, rbac.ADMIN_RULES))
    assert view < edit < admin


def test_given_the_view_role_then_it_changes_nothing() -> None:
    for group, resource, verb in granted(rbac.VIEW_RULES):
        assert verb in rbac.READ or (group, verb) in {
            ("subresources.kubevirt.io", "create"),  # plan
            ("subresources.kubevirt.io", "update"),  # expand-vm-spec
        }, resource


@pytest.mark.parametrize("action", SUBRESOURCES, ids=[each.path for each in SUBRESOURCES])
def test_given_any_subresource_then_some_role_grants_it(action: Any) -> None:
    every = granted((*rbac.ADMIN_RULES, *rbac.MIGRATE_RULES))
    assert ("subresources.kubevirt.io", action.path, action.verb) in every


class RecordingReader:
    """A reader that has nothing, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.kinds: set[tuple[str, str]] = set()

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        self.kinds.add((kind.group, kind.plural))
        return None

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        self.kinds.add((kind.group, kind.plural))
        return []

    def occupancy(self, node: str, instance: str) -> tuple[Object | None, Share]:
        return None, Share()


def test_given_any_example_then_the_webhook_may_read_what_the_rules_look_up() -> None:
    read = RecordingReader()
    for example in EXAMPLES.values():
        kind = kinds.REGISTRY.of_object(example.manifest)
        if kind is None or kind.resource not in admission.RULES:
            continue
        new = copy.deepcopy(example.manifest)
        new["metadata"] |= {"namespace": "default", "uid": "u"}
        rules = admission.RULES[kind.resource]
        version = new["apiVersion"].rpartition("/")[2]
        review = Review("create", kind, version, new, None, User("jane"), read, NOON)
        rules.default(new)
        rules.prepare(review)
        rules.validate(review)
    assert (core.STORAGE_CLASS.group, core.STORAGE_CLASS.plural) in read.kinds
    readable = {
        (group, resource)
        for group, resource, verb in granted(rbac.WEBHOOK.cluster_rules)
        if verb == "get"
    }
    assert read.kinds <= readable


def test_given_a_plan_then_the_api_may_read_the_priority_class_of_a_vm() -> None:
    wanted = (core.PRIORITY_CLASS.group, core.PRIORITY_CLASS.plural, "get")
    assert wanted in granted(rbac.API.cluster_rules)


def test_the_controller_may_get_what_it_reads_fresh_for_every_edit() -> None:
    allowed = granted(rbac.CONTROLLER.cluster_rules)
    for kind in live_update.READ_FRESH:
        assert (kind.group, kind.plural, "get") in allowed, kind
