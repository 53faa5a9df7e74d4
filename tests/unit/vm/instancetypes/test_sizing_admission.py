"""A VM at admission: expanded, or refused, or warned of what is not there yet."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.revisions import revision_of
from livevirt.vm.instancetypes.sizing_admission import ignored, is_referred_anew, is_resized, size
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE

from ..vm_review import a_spec, a_vm


class Objects:
    def __init__(self, *objects: Object) -> None:
        self._held = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        return self._held.get((kind.kind, name))


def an_object(kind: Kind, name: str, spec: Object) -> Object:
    meta = {"name": name, "uid": name, "generation": 1}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}


def a_type(name: str) -> Object:
    spec = {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}
    return an_object(CLUSTER_INSTANCETYPE, name, spec)


SMALL = a_type("small")
NEEDY = an_object(CLUSTER_PREFERENCE, "needy", {"requirements": {"cpu": {"guest": 4}}})
OTHERS = revision_of(a_vm(), a_type("other"))
OBJECTS = Objects(SMALL, NEEDY, OTHERS)
EMPTY: Object = {"domain": {"devices": {}}}


def vm(spec: Object | None = None, **matchers: Any) -> Object:
    return a_vm(spec or EMPTY, **matchers)


def test_a_vm_is_expanded() -> None:
    found = size(vm(instancetype={"name": "small"}), OBJECTS)
    assert (found.errors, found.warnings, found.known) == ([], [], True)
    assert found.vm["spec"]["template"]["spec"]["domain"]["memory"] == {"guest": "1Gi"}


REFUSED: dict[str, tuple[Object, str]] = {
    "2.1 a matcher that names nothing": (vm(instancetype={}), "spec.instancetype"),
    "4.3 a conflict": (
        vm(a_spec(memory={"guest": "1Gi"}), instancetype={"name": "small"}),
        "spec.template.spec.domain.memory.guest",
    ),
    "5 a requirement": (
        vm(instancetype={"name": "small"}, preference={"name": "needy"}), "spec.instancetype",
    ),
    "6 nothing to infer from": (
        vm(instancetype={"inferFromVolume": "v"}), "spec.instancetype.inferFromVolume",
    ),
    "7.3 vCPUs and sockets, while the type is missing": (
        vm(
            {"domain": {"devices": {}, "cpu": {"guest": 2, "sockets": 2}}},
            instancetype={"name": "later"},
        ),
        "spec.template.spec.domain.cpu.guest",
    ),
    "7.3 vCPUs and sockets": (
        vm(a_spec(cpu={"guest": 2, "sockets": 2})), "spec.template.spec.domain.cpu.guest",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("machine", "field"), REFUSED.values(), ids=REFUSED)
def test_a_vm_is_refused(machine: Object, field: str) -> None:
    assert [error.field for error in size(machine, OBJECTS).errors] == [field]


def test_2_3_an_object_that_is_not_there_yet_is_a_warning() -> None:
    found = size(vm(instancetype={"name": "later"}), OBJECTS)
    assert (found.errors, found.known) == ([], False)
    assert found.warnings == [
        "spec.instancetype.name: virtualmachineclusterinstancetypes.instancetype.kubevirt.io"
        ' "later" not found; the VM cannot start until it is there'
    ]


def test_a_pin_left_behind_is_a_warning() -> None:
    pin = OTHERS["metadata"]["name"]
    found = size(vm(instancetype={"name": "small", "revisionName": pin}), OBJECTS)
    assert found.errors == []
    assert found.warnings == [
        f"spec.instancetype.revisionName: {pin} is not a revision of instance type small, so it is"
        " ignored"
    ]


REALTIME = an_object(
    CLUSTER_INSTANCETYPE, "rt",
    {"cpu": {"guest": 2, "realtime": {"mask": "0"}}, "memory": {"guest": "1Gi"}},
)  # fmt: skip
FANCY = an_object(
    CLUSTER_PREFERENCE, "fancy",
    {"firmware": {"preferredEfi": {}}, "features": {"preferredSmm": {"enabled": True}}},
)  # fmt: skip
SMM: Object = {"domain": {"devices": {}, "features": {"smm": {"enabled": True}}}}
OF_TYPE = "instance type rt: livevirt does not act on domain.cpu.realtime"
OF_PREFERENCE = "preference fancy: livevirt does not act on "
IGNORED: dict[str, tuple[Object, list[str]]] = {
    "nothing": (vm(instancetype={"name": "small"}), []),
    "of the VM itself, which is told field by field": (vm(SMM, instancetype={"name": "small"}), []),
    "of a type": (vm(instancetype={"name": "rt"}), [OF_TYPE]),
    "of both": (
        vm(instancetype={"name": "rt"}, preference={"name": "fancy"}),
        [OF_TYPE, f"{OF_PREFERENCE}domain.features.smm, domain.firmware.bootloader.efi"],
    ),
    "of a preference, but for what the VM sets too": (
        vm(SMM, instancetype={"name": "small"}, preference={"name": "fancy"}),
        [f"{OF_PREFERENCE}domain.firmware.bootloader.efi"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("machine", "told"), IGNORED.values(), ids=IGNORED)
def test_what_a_type_or_preference_brings_and_nothing_acts_on_is_told(
    machine: Object, told: list[str]
) -> None:
    sized = size(machine, Objects(SMALL, REALTIME, FANCY))
    assert sized.errors == []
    assert ignored(machine, sized) == told


EDITS: dict[str, tuple[Object, bool]] = {
    "nothing": (vm(), False),
    "run strategy": (vm(runStrategy="Always"), False),
    "the template": (vm(a_spec()), True),
    "the instance type": (vm(instancetype={"name": "small"}), True),
    "the preference": (vm(preference={"name": "p"}), True),
}


@pytest.mark.parametrize(("new", "resized"), EDITS.values(), ids=EDITS)
def test_is_resized(new: Object, resized: bool) -> None:
    assert is_resized(new, vm()) is resized


USED: Object = {"instancetypeRef": {"name": "small"}}
STATUSES: dict[str, tuple[Object, bool]] = {
    "the same": (USED, False),
    "something else": ({**USED, "ready": True}, False),
    "cleared": ({}, True),
    "another": ({"instancetypeRef": {"name": "other"}}, True),
    "one more": ({**USED, "preferenceRef": {"name": "p"}}, True),
}


@pytest.mark.parametrize(("status", "anew"), STATUSES.values(), ids=STATUSES)
def test_is_referred_anew(status: Object, anew: bool) -> None:
    assert is_referred_anew({**vm(), "status": status}, {**vm(), "status": USED}) is anew
