"""Fact sheet 2.1: what a matcher may be."""

from __future__ import annotations

import pytest

from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules import matchers
from livevirt.vm.instancetypes.rules.matchers import Role, matcher_errors
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE, INSTANCETYPE, PREFERENCE

from .instancetype_builders import a_vm

KINDS: dict[str, tuple[Role, str, Kind | None]] = {
    "left out, then the cluster's": (matchers.INSTANCETYPE, "", CLUSTER_INSTANCETYPE),
    "singular": (matchers.INSTANCETYPE, "virtualmachineinstancetype", INSTANCETYPE),
    "plural": (matchers.INSTANCETYPE, "virtualmachineinstancetypes", INSTANCETYPE),
    "as the kind is spelled": (
        matchers.INSTANCETYPE, "VirtualMachineClusterInstancetype", CLUSTER_INSTANCETYPE,
    ),
    "preference left out": (matchers.PREFERENCE, "", CLUSTER_PREFERENCE),
    "preference": (matchers.PREFERENCE, "VIRTUALMACHINEPREFERENCE", PREFERENCE),
    "of the other matcher": (matchers.PREFERENCE, "VirtualMachineInstancetype", None),
    "unknown": (matchers.INSTANCETYPE, "flavor", None),
}  # fmt: skip


@pytest.mark.parametrize(("role", "text", "kind"), KINDS.values(), ids=KINDS)
def test_kind(role: Role, text: str, kind: Kind | None) -> None:
    assert role.kind(text) is kind


ERRORS: dict[str, tuple[Object, list[tuple[str, str, str]]]] = {
    "a name": ({"name": "a"}, []),
    "neither name nor volume": (
        {"kind": "virtualmachineinstancetype"},
        [("", "FieldValueNotFound",
          "Either Name or InferFromVolume should be provided within the {matcher}")],
    ),
    "volume and name": (
        {"inferFromVolume": "v", "name": "a"},
        [(".name", "FieldValueNotSupported",
          "Name already set, should be cleared before setting inferFromVolume")],
    ),
    "volume and kind": (
        {"inferFromVolume": "v", "kind": "x"},
        [(".kind", "FieldValueNotSupported",
          "Kind already set, should be cleared before setting inferFromVolume")],
    ),
    "unknown policy": (
        {"inferFromVolume": "v", "inferFromVolumeFailurePolicy": "Maybe"},
        [(".inferFromVolumeFailurePolicy", "FieldValueInvalid",
          "Invalid value 'Maybe' for InferFromVolumeFailurePolicy")],
    ),
    "unknown kind": (
        {"name": "a", "kind": "Flavor"},
        [(".kind", "FieldValueInvalid", "got unexpected kind in {matcher}: flavor")],
    ),
    "volume and policy": (
        {"inferFromVolume": "v", "inferFromVolumeFailurePolicy": "Ignore"}, [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("role", matchers.ROLES, ids=lambda role: role.field)
@pytest.mark.parametrize(("matcher", "errors"), ERRORS.values(), ids=ERRORS)
def test_errors(role: Role, matcher: Object, errors: list[tuple[str, str, str]]) -> None:
    if matcher.get("kind") == "virtualmachineinstancetype":
        matcher = {"kind": role.namespaced.singular}
    found = matcher_errors(a_vm(**{role.field: matcher}))
    assert [(e.field, e.reason, e.message) for e in found] == [
        (f"spec.{role.field}{field}", reason, text.format(matcher=role.matcher))
        for field, reason, text in errors
    ]


def test_a_vm_without_matchers_has_nothing_wrong_with_them() -> None:
    assert matcher_errors(a_vm()) == []
