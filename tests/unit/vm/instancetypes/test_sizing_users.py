"""Which VMs a change of an instance type or preference matters to."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.control.cache import Change, Key
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.sizing import is_missed, revisions_used, users
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE, INSTANCETYPE


def a_vm(status: Object | None = None, **spec: Any) -> Object:
    return {"metadata": {"name": "web", "namespace": "one"}, "spec": spec, "status": status or {}}


def an_object(kind: Kind, namespace: str = "") -> Object:
    return {"kind": kind.kind, "metadata": {"name": "small", "namespace": namespace}}


NAMED = {"name": "small"}
OWN = {"name": "small", "kind": "virtualmachineinstancetypes"}
INFERRED = {"instancetypeRef": {"name": "small", "kind": "VirtualMachineClusterInstancetype"}}
RULES: dict[str, tuple[Object, Object, bool]] = {
    "it names nothing": (a_vm(), an_object(CLUSTER_INSTANCETYPE), False),
    "it names it": (a_vm(instancetype=NAMED), an_object(CLUSTER_INSTANCETYPE), True),
    "it names the preference": (a_vm(preference=NAMED), an_object(CLUSTER_PREFERENCE), True),
    "it names another kind": (a_vm(preference=NAMED), an_object(CLUSTER_INSTANCETYPE), False),
    "it names one of its namespace": (
        a_vm(instancetype=OWN), an_object(INSTANCETYPE, "one"), True,
    ),
    "it is of another namespace": (a_vm(instancetype=OWN), an_object(INSTANCETYPE, "two"), False),
    "it inferred it": (
        a_vm(INFERRED, instancetype={"inferFromVolume": "v"}), an_object(CLUSTER_INSTANCETYPE),
        True,
    ),
    "it inferred it, and names nothing any more": (
        a_vm(INFERRED), an_object(CLUSTER_INSTANCETYPE), False,
    ),
    "it names an unknown kind": (
        a_vm(instancetype={"name": "small", "kind": "flavor"}), an_object(INSTANCETYPE, "one"),
        False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("vm", "obj", "matters"), RULES.values(), ids=RULES)
def test_users(vm: Object, obj: Object, matters: bool) -> None:
    assert [str(key) for key in users([vm], obj)] == (["one/web"] if matters else [])


def uses(revision: str) -> Object:
    return {"instancetypeRef": {"controllerRevisionRef": {"name": revision}}}


GONE_BY: dict[str, tuple[Object, list[str]]] = {
    "it names nothing": (a_vm(), []),
    "none is taken yet": (a_vm(instancetype=NAMED), []),
    "the one in use": (a_vm(uses("r"), instancetype=NAMED), ["r"]),
    "the one it pins": (a_vm(uses("r"), instancetype={**NAMED, "revisionName": "p"}), ["p", "r"]),
    "its matcher is gone": (a_vm(uses("r")), []),
}


@pytest.mark.parametrize(("vm", "names"), GONE_BY.values(), ids=GONE_BY)
def test_revisions_used(vm: Object, names: list[str]) -> None:
    assert revisions_used(vm) == [Key("one", name) for name in names]


KEY, REVISION = Key("one", "r"), {"metadata": {"name": "r"}}
FAILED = {"conditions": [{"type": "Failure", "status": "True"}]}
MISSED: dict[str, tuple[Change, Object, bool]] = {
    "it has gone": (Change(KEY, REVISION, None), a_vm(), True),
    "it has come, as it does when it is taken": (Change(KEY, None, REVISION), a_vm(), False),
    "it has come to a VM without a size": (Change(KEY, None, REVISION), a_vm(FAILED), True),
    "only its labels are others": (Change(KEY, REVISION, REVISION), a_vm(FAILED), False),
}


@pytest.mark.parametrize(("change", "vm", "missed"), MISSED.values(), ids=MISSED)
def test_is_missed(change: Change, vm: Object, missed: bool) -> None:
    assert is_missed(change, vm) is missed
