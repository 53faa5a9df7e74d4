"""What instance types and preferences may be, and what is said about them."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review
from livevirt.vm.admission import RULES
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE, INSTANCETYPE, PREFERENCE

from ..vm_review import JANE, LIVE, NOON, Cluster

Told = tuple[Object, list[FieldError], list[str]]


def admit(kind: Kind, spec: Object, old: Object | None = None, version: str = "v1beta2") -> Told:
    asked = Review(
        "create" if old is None else "update", kind, version, an_object(kind, spec, version),
        None if old is None else an_object(kind, old, version), JANE, Cluster(LIVE), NOON,
    )  # fmt: skip
    rules = RULES[kind.resource]
    rules.default(asked.new)
    rules.prepare(asked)
    return asked.new, rules.validate(asked), asked.warnings


def an_object(kind: Kind, spec: Object, version: str) -> Object:
    meta = {"name": "a"}
    return {
        "apiVersion": kind.api_version_of(version), "kind": kind.kind, "metadata": meta,
        "spec": spec,
    }  # fmt: skip


def a_type(cpu: Object | None = None, memory: Object | None = None, **rest: Any) -> Object:
    return {
        "cpu": {"guest": 2} if cpu is None else cpu,
        "memory": {"guest": "1Gi"} if memory is None else memory,
        **rest,
    }


OVERCOMMIT = "spec.memory.overcommitPercent"
OPENABLE = "must be greater than 0; v1beta2 may leave it out, so that the VM sets it"
TYPES: dict[str, tuple[Object, list[tuple[str, str]]]] = {
    "a size": (a_type(), []),
    "7.1 open sizes": ({}, []),
    "7.1 no vCPUs": (a_type({"guest": 0}), [("spec.cpu.guest", f"spec.cpu.guest '0': {OPENABLE}")]),
    "7.1 less than none": (
        a_type({"guest": -1}),
        [("spec.cpu.guest", "spec.cpu.guest '-1': must be greater than 0 and fit into 32 bits")],
    ),
    "7.1 no memory": (
        a_type(memory={"guest": "0"}),
        [("spec.memory.guest", f"spec.memory.guest '0': {OPENABLE}")],
    ),
    "7.1 less than no memory": (
        a_type(memory={"guest": "-1Gi"}),
        [("spec.memory.guest", "spec.memory.guest '-1Gi': must be greater than 0")],
    ),
    "1.3 overcommit above 100": (
        a_type(memory={"guest": "1Gi", "overcommitPercent": 101}),
        [(OVERCOMMIT, f"{OVERCOMMIT} '101': must be in range between 0 and 100.")],
    ),
    "1.3 overcommit below 0": (
        a_type(memory={"guest": "1Gi", "overcommitPercent": -1}),
        [(OVERCOMMIT, f"{OVERCOMMIT} '-1': must be in range between 0 and 100.")],
    ),
    "1.3 overcommit of huge pages": (
        a_type(memory={"guest": "1Gi", "overcommitPercent": 15, "hugepages": {"pageSize": "2Mi"}}),
        [(OVERCOMMIT, f"{OVERCOMMIT} and spec.memory.hugepages should not be requested together.")],
    ),
    "1.3 a ceiling below the size": (
        a_type(memory={"guest": "1Gi", "maxGuest": "512Mi"}),
        [("spec.memory.maxGuest",
          "spec.memory.maxGuest '512Mi': must not be less than spec.memory.guest '1Gi'")],
    ),
    "1.3 a ceiling of nothing": (
        a_type(memory={"maxGuest": "0"}),
        [("spec.memory.maxGuest", "spec.memory.maxGuest '0': must be greater than 0")],
    ),
    "1.3 ceilings": (
        a_type({"guest": 2, "maxSockets": 8}, {"guest": "1Gi", "maxGuest": "1024Mi"}), [],
    ),
    "1.3 fewer sockets than vCPUs, which a preference may spread": (
        a_type({"guest": 8, "maxSockets": 2}), [],
    ),
    "a ceiling below zero": (
        a_type({"maxSockets": -1}),
        [("spec.cpu.maxSockets", "spec.cpu.maxSockets '-1': must be greater than or equal to 0")],
    ),
    "1.3 an unknown policy of I/O threads": (
        a_type(ioThreadsPolicy="many"),
        [("spec.ioThreadsPolicy",
          "spec.ioThreadsPolicy 'many': must be one of: shared, auto, supplementalPool")],
    ),
    "1.3 a page size nobody has": (
        a_type(memory={"hugepages": {"pageSize": "3Mi"}}),
        [("spec.memory.hugepages.pageSize",
          "spec.memory.hugepages.pageSize '3Mi': must be one of: 2Mi, 1Gi")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", [INSTANCETYPE, CLUSTER_INSTANCETYPE], ids=lambda kind: kind.kind)
@pytest.mark.parametrize(("spec", "errors"), TYPES.values(), ids=TYPES)
def test_instance_types(kind: Kind, spec: Object, errors: list[tuple[str, str]]) -> None:
    _, found, warnings = admit(kind, {**spec})
    assert [(error.field, error.message) for error in found] == errors
    assert {error.reason for error in found} <= {"FieldValueInvalid"}
    assert warnings == []


ZEROS: Object = {"cpu": {"guest": 0}, "memory": {"guest": "0"}}
SOME: Object = a_type()
OLDER: dict[str, tuple[Object, Object | None, list[str]]] = {
    "7.2 sizes": (SOME, None, []),
    "7.2 zeros cannot be created": (ZEROS, None, ["spec.cpu.guest", "spec.memory.guest"]),
    "7.2 zeros may stay where they are open": ({**ZEROS, "schedulerName": "s"}, ZEROS, []),
    "7.2 one of them may be closed": ({**ZEROS, "cpu": {"guest": 2}}, ZEROS, []),
    "7.2 what is closed cannot be opened": (ZEROS, SOME, ["spec.cpu.guest", "spec.memory.guest"]),
}


@pytest.mark.parametrize(("spec", "old", "fields"), OLDER.values(), ids=OLDER)
def test_instance_types_in_v1beta1(spec: Object, old: Object | None, fields: list[str]) -> None:
    _, found, _ = admit(INSTANCETYPE, spec, old, "v1beta1")
    assert [error.field for error in found] == fields


def test_7_1_an_open_size_is_no_zero_in_v1beta2() -> None:
    _, found, _ = admit(INSTANCETYPE, {"cpu": {"guest": 0}}, {"cpu": {}, "memory": {}})
    assert [error.field for error in found] == ["spec.cpu.guest"]


def test_a_part_that_says_nothing_is_written_down_so_that_both_versions_show_the_same() -> None:
    stored, errors, _ = admit(INSTANCETYPE, {})
    assert errors == []
    assert stored["spec"] == {"cpu": {}, "memory": {}}
    shown = INSTANCETYPE.as_version("v1beta1", stored)
    assert INSTANCETYPE.as_version("v1beta2", shown) == stored


def test_deprecated_launch_security_is_warned_of_once() -> None:
    spec = a_type(launchSecurity={"sev": {}})
    assert admit(INSTANCETYPE, spec)[2] == [
        "launchSecurity is deprecated and will be removed in a future release. Use preference"
        " instead."
    ]
    assert admit(INSTANCETYPE, spec, spec)[2] == []


def test_an_object_that_was_stored_before_a_rule_can_still_be_labelled() -> None:
    bad = a_type(ioThreadsPolicy="many")
    assert admit(INSTANCETYPE, bad, bad)[1] == []


def spread(**options: Any) -> Object:
    return {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": options}}


RATIO = "spec.cpu.spreadOptions.ratio"
WISHES: dict[str, tuple[Object, list[tuple[str, str]], list[str]]] = {
    "nothing": ({}, [], []),
    "1.4 an unknown topology": (
        {"cpu": {"preferredCPUTopology": "rings"}},
        [("spec.cpu.preferredCPUTopology", "unknown preferredCPUTopology rings")], [],
    ),
    "1.4 an unknown across": (
        spread(across="Rings"),
        [("spec.cpu.spreadOptions.across", "across Rings is not supported")], [],
    ),
    "1.4 cores and threads by three": (
        spread(across="CoresThreads", ratio=3),
        [(RATIO, "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores"
          " and threads")], [],
    ),
    "10.5 a ratio of zero": (
        spread(ratio=0), [(RATIO, "a ratio of 0 divides nothing, it must be at least 1")], [],
    ),
    "1.4 an older name": (
        {"cpu": {"preferredCPUTopology": "preferSpread"}}, [],
        ["PreferredCPUTopology preferSpread is deprecated for removal in a future release, please"
         " use spread instead"],
    ),
    "1.2 older firmware": (
        {"firmware": {"preferredUseEfi": True, "preferredUseSecureBoot": True}}, [],
        ["spec.firmware.preferredUseEfi is deprecated for removal in a future release, please use"
         " spec.firmware.preferredEfi instead",
         "spec.firmware.preferredUseSecureBoot is deprecated for removal in a future release,"
         " please use spec.firmware.preferredEfi.secureBoot instead"],
    ),
    "less than no vCPUs required": (
        {"requirements": {"cpu": {"guest": -1}}},
        [("spec.requirements.cpu.guest",
          "spec.requirements.cpu.guest '-1': must be greater than or equal to 0")], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize("kind", [PREFERENCE, CLUSTER_PREFERENCE], ids=lambda kind: kind.kind)
@pytest.mark.parametrize(("spec", "errors", "warnings"), WISHES.values(), ids=WISHES)
def test_preferences(
    kind: Kind, version: str, spec: Object, errors: list[tuple[str, str]], warnings: list[str]
) -> None:
    stored, found, told = admit(kind, spec, version=version)
    assert [(error.field, error.message) for error in found] == errors
    assert told == warnings
    assert stored["spec"] == spec
    assert admit(kind, spec, spec, version)[1:] == ([], [])
