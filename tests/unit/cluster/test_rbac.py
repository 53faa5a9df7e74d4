"""Permissions of components and roles of users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from livevirt.cluster import manifests, rbac
from livevirt.cluster.manifests import InstallOptions
from livevirt.vm.config.settings import NAMESPACE
from livevirt.vm.kinds.subresources import SUBRESOURCES

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
        assert "serviceaccounts/token" not in rule["resources"], role
        assert "pods/exec" not in rule["resources"], role


def test_given_the_bindings_then_none_grants_cluster_admin() -> None:
    bindings = [each for each in APPLIED if each["kind"].endswith("Binding")]
    ours = {role["metadata"]["name"] for role in ROLES}
    existing = {role for component in rbac.COMPONENTS for _, role in component.existing_roles}
    assert {each["roleRef"]["name"] for each in bindings} <= ours | existing


def test_given_a_component_then_its_deployment_runs_as_its_own_account() -> None:
    deployments = [each for each in APPLIED if each["kind"] == "Deployment"]
    accounts = [each["spec"]["template"]["spec"]["serviceAccountName"] for each in deployments]
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
