"""Fact sheet 3: what a VM keeps of what it was given."""

from __future__ import annotations

import copy

import pytest

from livevirt.kube.objects import names
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules import matchers, revisions
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE

from .instancetype_builders import a_preference, a_revision, a_type, a_vm, taken

DECORATED = a_type(
    "u1.medium", labels={"l": "1"}, annotations={"a": "1"}, finalizers=["f/f"],
    ownerReferences=[{}], managedFields=[{}], generation=3, uid="0444161e",
)  # fmt: skip


def test_a_revision_is_named_after_vm_object_version_uid_and_generation() -> None:
    assert revisions.name_of(a_vm(), DECORATED) == "web-u1.medium-v1beta2-0444161e-3"


def test_a_revision_belongs_to_the_vm_and_is_labelled_with_the_object() -> None:
    meta = revisions.revision_of(a_vm(), DECORATED)["metadata"]
    assert meta["namespace"] == "default"
    assert meta["ownerReferences"] == [
        {
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web",
            "uid": "vm-uid", "controller": True, "blockOwnerDeletion": True,
        }
    ]  # fmt: skip
    prefix = "instancetype.kubevirt.io/object-"
    assert meta["labels"] == {
        f"{prefix}generation": "3",
        f"{prefix}kind": "VirtualMachineClusterInstancetype",
        f"{prefix}name": "u1.medium",
        f"{prefix}uid": "0444161e",
        f"{prefix}version": "v1beta2",
    }


def test_a_revision_holds_the_object_without_what_others_put_on_it() -> None:
    made = revisions.revision_of(a_vm(), DECORATED)
    assert made["revision"] == 0
    assert made["data"] == {
        "apiVersion": "instancetype.kubevirt.io/v1beta2",
        "kind": "VirtualMachineClusterInstancetype",
        "metadata": {"name": "u1.medium", "uid": "0444161e", "generation": 3},
        "spec": DECORATED["spec"],
    }


def test_given_names_of_any_length_when_named_then_kubernetes_takes_them() -> None:
    long, vm = a_type("t" * 253, uid="u"), a_vm()
    vm["metadata"]["name"] = "v" * 253
    made = revisions.revision_of(vm, long)["metadata"]
    assert names.validate_dns1123_subdomain(made["name"]) == []
    assert all(len(value) <= 63 for value in made["labels"].values())
    other = {**long, "metadata": {**long["metadata"], "generation": 2}}
    assert revisions.name_of(vm, other) != made["name"]


def in_v1beta1(spec: Object) -> Object:
    made = taken(a_type())["data"]
    return {**made, "apiVersion": "instancetype.kubevirt.io/v1beta1", "spec": spec}


def without(field: str, **rest: object) -> Object:
    made = taken(a_type())["data"]
    return {**{name: value for name, value in made.items() if name != field}, **rest}


NAMELESS = "failed to decode object in ControllerRevision: r holds an object without a name"
CONTENT: dict[str, tuple[object, object]] = {
    "what was taken": (taken(a_type())["data"], a_type()["spec"]),
    "1.2 of the older version": (
        in_v1beta1({"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}), a_type()["spec"],
    ),
    "7.2 of the older version, with open sizes": (
        in_v1beta1({"cpu": {"guest": 0}, "memory": {"guest": "0"}}), {"cpu": {}, "memory": {}},
    ),
    "1.2 of an alpha version": (
        {**in_v1beta1({}), "apiVersion": "instancetype.kubevirt.io/v1alpha2"},
        "failed to decode object in ControllerRevision: r holds version"
        " instancetype.kubevirt.io/v1alpha2, known are v1beta2, v1beta1",
    ),
    "1.2 a blob of the first version": (
        {"apiVersion": "instancetype.kubevirt.io/v1alpha1", "spec": "e30="},
        "failed to decode object in ControllerRevision: r holds no object",
    ),
    "no metadata": (without("metadata"), NAMELESS),
    "metadata of another shape": (without("metadata", metadata="web"), NAMELESS),
    "no name": (without("metadata", metadata={"uid": "u"}), NAMELESS),
    "a name of another shape": (without("metadata", metadata={"name": 1}), NAMELESS),
    "nothing": (None, "failed to decode object in ControllerRevision: r holds no object"),
    "of another role": (
        taken(a_preference())["data"],
        "unexpected type in ControllerRevision: VirtualMachineClusterPreference in r",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "expected"), CONTENT.values(), ids=CONTENT)
def test_content(data: object, expected: object) -> None:
    revision = a_revision("r", data)
    if isinstance(expected, str):
        with pytest.raises(revisions.Unreadable) as refusal:
            revisions.content(matchers.INSTANCETYPE, revision)
        assert str(refusal.value) == expected
    else:
        found = revisions.content(matchers.INSTANCETYPE, revision)
        assert (found["apiVersion"], found["spec"]) == (CLUSTER_INSTANCETYPE.api_version, expected)


def test_given_nothing_but_a_name_then_it_can_be_taken_again() -> None:
    bare = {**a_type(), "metadata": {"name": "small"}}
    made = taken(bare)["metadata"]
    assert made["name"] == revisions.name_of(a_vm(), bare)
    assert names.validate_dns1123_subdomain(made["name"]) == []
    assert made["labels"][revisions.UID] == ""


SAME = {
    "the same": ("1Gi", True),
    "3 the same amount in other words": ("1024Mi", True),
    "3 another amount": ("2Gi", False),
}


@pytest.mark.parametrize(("memory", "same"), SAME.values(), ids=SAME)
def test_a_revision_is_used_again_if_it_holds_the_same(memory: str, same: bool) -> None:
    wanted = taken(a_type(memory="1Gi"))
    stored = copy.deepcopy(wanted)
    stored["data"]["spec"]["memory"]["guest"] = memory
    assert revisions.is_same(stored, wanted) is same


CURRENT = {
    "3 no version": ({}, False),
    "3 an older version": ({revisions.VERSION: "v1beta1"}, False),
    "the stored version": ({revisions.VERSION: "v1beta2"}, True),
}


@pytest.mark.parametrize(("labels", "current"), CURRENT.values(), ids=CURRENT)
def test_revisions_of_other_versions_are_to_be_taken_again(
    labels: dict[str, str], current: bool
) -> None:
    assert revisions.is_current(a_revision("r", {}, **labels)) is current
