"""Fact sheets 4.2, 4.4 and 7: what an instance type makes of a template."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.expansion import Expanded, Sizing, expand
from livevirt.vm.instancetypes.rules.sizes import overcommitted

D = "spec.template.spec.domain"


def template(**parts: Any) -> Object:
    return {"spec": {"domain": {"devices": {}, **parts}}}


def expanded(
    parts: Object, instancetype: Object | None, preference: Object | None = None
) -> Object:
    found = expand(template(**parts), Sizing(instancetype, preference, "t"))
    assert found.errors == ()
    spec: Object = found.template["spec"]
    return spec


def a_type(cpu: Object | None = None, memory: Object | None = None, **rest: Any) -> Object:
    return {
        "cpu": {"guest": 2} if cpu is None else cpu,
        "memory": {"guest": "1Gi"} if memory is None else memory,
        **rest,
    }


TWO = {"sockets": 2, "cores": 1, "threads": 1}
APPLIED: dict[str, tuple[Object, Object]] = {
    "4.2 vCPUs and memory": (a_type(), {"cpu": TWO, "memory": {"guest": "1Gi"}}),
    "4.2 settings of the CPU, as the VM spells them": (
        a_type({
            "guest": 2, "model": "m", "dedicatedCPUPlacement": True, "isolateEmulatorThread": True,
            "numa": {"guestMappingPassthrough": {}}, "realtime": {"mask": "0"}, "maxSockets": 8,
        }),
        {"cpu": {
            **TWO, "model": "m", "dedicatedCpuPlacement": True, "isolateEmulatorThread": True,
            "numa": {"guestMappingPassthrough": {}}, "realtime": {"mask": "0"}, "maxSockets": 8,
        }},
    ),
    "4.2 settings of memory": (
        a_type(memory={"guest": "1Gi", "maxGuest": "4Gi", "hugepages": {"pageSize": "2Mi"}}),
        {"memory": {"guest": "1Gi", "maxGuest": "4Gi", "hugepages": {"pageSize": "2Mi"}}},
    ),
    "4.2 overcommit": (
        a_type(memory={"guest": "1Gi", "overcommitPercent": 50}),
        {"memory": {"guest": "1Gi"}, "resources": {"requests": {"memory": "512Mi"}}},
    ),
    "4.2 ioThreads": (
        a_type(ioThreads={"supplementalPoolThreadCount": 2}, ioThreadsPolicy="supplementalPool"),
        {"ioThreads": {"supplementalPoolThreadCount": 2}, "ioThreadsPolicy": "supplementalPool"},
    ),
    "4.2 launchSecurity": (a_type(launchSecurity={"sev": {}}), {"launchSecurity": {"sev": {}}}),
    "4.2 devices of the host": (
        a_type(gpus=[{"name": "g"}], hostDevices=[{"name": "h"}]),
        {"devices": {"gpus": [{"name": "g"}], "hostDevices": [{"name": "h"}]}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("instancetype", "parts"), APPLIED.values(), ids=APPLIED)
def test_an_instance_type_is_applied(instancetype: Object, parts: Object) -> None:
    domain = expanded({}, instancetype)["domain"]
    assert {name: domain[name] for name in parts} == parts


def test_placement_and_annotations_of_an_instance_type_are_applied() -> None:
    owned = a_type(nodeSelector={"a": "b"}, schedulerName="s", annotations={"k": "v"})
    made = expand({"metadata": {"labels": {"l": "1"}}, "spec": {"domain": {}}}, Sizing(owned))
    assert made.template["spec"]["nodeSelector"] == {"a": "b"}
    assert made.template["spec"]["schedulerName"] == "s"
    assert made.template["metadata"] == {"labels": {"l": "1"}, "annotations": {"k": "v"}}


def test_what_the_type_leaves_open_stays_the_vms() -> None:
    own = {"cpu": {"maxSockets": 8, "model": "m"}, "memory": {"maxGuest": "4Gi"}}
    domain = expanded(own, a_type())["domain"]
    assert domain["cpu"] == {**TWO, "maxSockets": 8, "model": "m"}
    assert domain["memory"] == {"guest": "1Gi", "maxGuest": "4Gi"}


OVERCOMMIT = {
    "4.2 15 % in single precision": ("1Gi", 15, "912680576"),
    "4.2 50 %": ("1Gi", 50, "512Mi"),
    "4.2 all of it": ("1Gi", 100, "0"),
    "4.2 the format is kept": ("1G", 50, "500M"),
}


@pytest.mark.parametrize(("guest", "percent", "asked"), OVERCOMMIT.values(), ids=OVERCOMMIT)
def test_overcommitted(guest: str, percent: int, asked: str) -> None:
    assert str(overcommitted(parse(guest), percent)) == asked


# ---------------------------------------------------------------- sizes the VM gives

CORES = {"cpu": {"preferredCPUTopology": "cores"}}
OPEN = a_type({}, {})
CUSTOM: dict[str, tuple[Object, Object | None, Object | None, Object]] = {
    "7.4 without anything, then sockets of one core": (
        {"cpu": {"guest": 4}}, None, None, {"sockets": 4, "cores": 1, "threads": 1},
    ),
    "7.4 spread by a preference alone": (
        {"cpu": {"guest": 4}}, None, CORES, {"sockets": 1, "cores": 4, "threads": 1},
    ),
    "7.4 with an open type": (
        {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}, OPEN, None, TWO,
    ),
    "7.4 with an open type, spread by a preference": (
        {"cpu": {"guest": 4}, "memory": {"guest": "1Gi"}}, OPEN, CORES,
        {"sockets": 1, "cores": 4, "threads": 1},
    ),
    "7.3 other settings of the CPU stay allowed": (
        {"cpu": {"guest": 2, "maxSockets": 8, "model": "m"}}, None, None,
        {**TWO, "maxSockets": 8, "model": "m"},
    ),
    "4.4 without vCPUs a preference changes no topology": (
        {"cpu": {"sockets": 2}}, None, CORES, {"sockets": 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("own", "owned", "preference", "cpu"), CUSTOM.values(), ids=CUSTOM)
def test_vcpus_of_the_vm(
    own: Object, owned: Object | None, preference: Object | None, cpu: Object
) -> None:
    assert expanded(own, owned, preference)["domain"]["cpu"] == cpu


def test_overcommit_and_ceilings_of_an_open_type_hold_for_the_vms_sizes() -> None:
    """7.7"""
    owned = a_type({"maxSockets": 8}, {"maxGuest": "8Gi", "overcommitPercent": 50})
    domain = expanded({"cpu": {"guest": 2}, "memory": {"guest": "2Gi"}}, owned)["domain"]
    assert domain["cpu"] == {**TWO, "maxSockets": 8}
    assert domain["memory"] == {"guest": "2Gi", "maxGuest": "8Gi"}
    assert domain["resources"] == {"requests": {"memory": "1Gi"}}


def test_the_memory_of_a_vm_that_infers_gives_way_to_what_was_inferred() -> None:
    """6: with policy Ignore it was only for the case that nothing is inferred."""
    sizing = Sizing(a_type(), None, "t", drops_memory=True)
    own = template(memory={"guest": "512Mi", "maxGuest": "1Gi"})
    assert expand(own, sizing).template["spec"]["domain"]["memory"] == {"guest": "1Gi"}


def test_the_memory_of_a_vm_that_infers_an_open_type_stays() -> None:
    sizing = Sizing(a_type({"guest": 1}, {}), None, "t", drops_memory=True)
    own = template(memory={"guest": "512Mi"})
    assert expand(own, sizing).template["spec"]["domain"]["memory"] == {"guest": "512Mi"}


ERRORS: dict[str, tuple[Object, Object | None, Object | None, list[tuple[str, str, str]]]] = {
    "7.3 vCPUs and sockets": (
        {"cpu": {"guest": 2, "sockets": 2}}, None, None,
        [(f"{D}.cpu.guest", "FieldValueInvalid",
          f"{D}.cpu.guest and {D}.cpu.sockets are mutually exclusive")],
    ),
    "7.3 vCPUs, cores and threads": (
        {"cpu": {"guest": 2, "cores": 2, "threads": 1}}, None, None,
        [(f"{D}.cpu.guest", "FieldValueInvalid",
          f"{D}.cpu.guest and {D}.cpu.{each} are mutually exclusive")
         for each in ("cores", "threads")],
    ),
    "7.3 no vCPUs at all": (
        {"cpu": {"guest": 0}}, None, None,
        [(f"{D}.cpu.guest", "FieldValueInvalid", f"{D}.cpu.guest '0': must be greater than 0")],
    ),
    "7.6 an open type, and a VM that says nothing": (
        {}, OPEN, None,
        [(f"{D}.cpu.guest", "FieldValueRequired",
          f"instance type t does not provide vCPUs, {D}.cpu.guest is required"),
         (f"{D}.memory.guest", "FieldValueRequired",
          f"instance type t does not provide memory, {D}.memory.guest is required")],
    ),
    "7.6 huge pages are no memory": (
        {"cpu": {"guest": 1}}, a_type({}, {"hugepages": {"pageSize": "2Mi"}}), None,
        [(f"{D}.memory.guest", "FieldValueRequired",
          f"instance type t does not provide memory, {D}.memory.guest is required")],
    ),
    "7.5 a topology is no number of vCPUs": (
        {"cpu": {"sockets": 2}, "memory": {"guest": "1Gi"}}, OPEN, None,
        [(f"{D}.cpu.sockets", "FieldValueInvalid",
          f"VM field(s) {D}.cpu.sockets conflicts with selected instance type"),
         (f"{D}.cpu.guest", "FieldValueRequired",
          f"instance type t does not provide vCPUs, {D}.cpu.guest is required")],
    ),
    "4.4 vCPUs of the type that do not come out even": (
        {}, a_type({"guest": 3}), {"cpu": {"preferredCPUTopology": "spread"}},
        [("instancetype.spec.cpu.guest", "FieldValueInvalid",
          "3 vCPUs provided by the instance type are not divisible by the"
          " Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of 2 provided"
          " by the preference")],
    ),
    "7.4 vCPUs of the VM that do not come out even": (
        {"cpu": {"guest": 3}}, None,
        {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": "CoresThreads"}}},
        [(f"{D}.cpu.guest", "FieldValueInvalid",
          "3 vCPUs provided by the VirtualMachine are not divisible by the number of threads per"
          " core 2")],
    ),
    "10.5 a stored ratio of zero": (
        {}, a_type(), {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 0}}},
        [("spec.preference", "FieldValueInvalid",
          "spec.cpu.spreadOptions.ratio: a ratio of 0 divides nothing, it must be at least 1")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("own", "owned", "preference", "errors"), ERRORS.values(), ids=ERRORS)
def test_wrong_combinations_are_field_errors(
    own: Object,
    owned: Object | None,
    preference: Object | None,
    errors: list[tuple[str, str, str]],
) -> None:
    found = expand(template(**own), Sizing(owned, preference, "t"))
    assert [(e.field, e.reason, e.message) for e in found.errors] == errors


def test_given_a_conflict_when_expanded_then_nothing_is_applied() -> None:
    """4.1: not the preference either."""
    own = template(cpu={"sockets": 1})
    found = expand(own, Sizing(a_type(), {"machine": {"preferredMachineType": "q35"}}))
    path = f"{D}.cpu.sockets"
    assert found == Expanded(own, (path,), found.errors)
    assert [error.field for error in found.errors] == [path]


def test_a_template_that_names_nothing_is_handed_back_as_it_is() -> None:
    own = template(cpu={"sockets": 1})
    assert expand(own, Sizing()).template is own
