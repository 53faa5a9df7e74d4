"""Fact sheet 4.2 and 4.3: a VM may not say what its instance type says."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.conflicts import conflict_error, conflicts

SIZED: Object = {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}
OPEN: Object = {"cpu": {}, "memory": {}}


def type_with(part: str = "", value: Any = None, **fields: Any) -> Object:
    if not part:
        return {**SIZED, **fields}
    return {**SIZED, part: {**SIZED[part], **value}}


def domain(**parts: Any) -> Object:
    return {"spec": {"domain": {"devices": {}, **parts}}}


def resources(side: str, name: str) -> Object:
    return domain(resources={side: {name: "1"}})


NUMA = {"guestMappingPassthrough": {}}
D = "spec.template.spec.domain"
RULES: dict[str, tuple[Object, Object, list[str]]] = {
    "4.2 a VM that says nothing": (domain(), SIZED, []),
    "4.2 nodeSelector, even empty": (
        {"spec": {"nodeSelector": {}}}, type_with(nodeSelector={"a": "b"}),
        ["spec.template.spec.nodeSelector"],
    ),
    "4.2 nodeSelector of the VM alone": ({"spec": {"nodeSelector": {"a": "b"}}}, SIZED, []),
    "4.2 schedulerName": (
        {"spec": {"schedulerName": "a"}}, type_with(schedulerName="b"),
        ["spec.template.spec.schedulerName"],
    ),
    "4.2 an empty schedulerName": (
        {"spec": {"schedulerName": ""}}, type_with(schedulerName="b"), [],
    ),
    "4.2 requests.cpu": (resources("requests", "cpu"), SIZED, [f"{D}.resources.requests.cpu"]),
    "4.2 limits.cpu": (resources("limits", "cpu"), SIZED, [f"{D}.resources.limits.cpu"]),
    "4.2 requests.memory":
        (resources("requests", "memory"), SIZED, [f"{D}.resources.requests.memory"]),
    "4.2 limits.memory": (resources("limits", "memory"), SIZED, [f"{D}.resources.limits.memory"]),
    "4.2 other resources": (resources("limits", "example.com/gpu"), SIZED, []),
    "4.2 all of the topology": (
        domain(cpu={"threads": 1, "cores": 1, "sockets": 1}), SIZED,
        [f"{D}.cpu.sockets", f"{D}.cpu.cores", f"{D}.cpu.threads"],
    ),
    "4.2 a topology of zeros": (domain(cpu={"sockets": 0, "cores": 0, "threads": 0}), SIZED, []),
    "7.5 a topology beside an open type": (domain(cpu={"cores": 2}), OPEN, [f"{D}.cpu.cores"]),
    "7.5 requests beside an open type":
        (resources("requests", "memory"), OPEN, [f"{D}.resources.requests.memory"]),
    "7.5 vCPUs of both": (domain(cpu={"guest": 2}), SIZED, [f"{D}.cpu.guest"]),
    "7.5 vCPUs of the VM alone": (domain(cpu={"guest": 2}), OPEN, []),
    "4.2 model":
        (domain(cpu={"model": "a"}), type_with("cpu", {"model": "b"}), [f"{D}.cpu.model"]),
    "4.2 model of the VM alone": (domain(cpu={"model": "a"}), SIZED, []),
    "10.7 dedicatedCpuPlacement, as the VM spells it": (
        domain(cpu={"dedicatedCpuPlacement": True}),
        type_with("cpu", {"dedicatedCPUPlacement": False}), [f"{D}.cpu.dedicatedCpuPlacement"],
    ),
    "4.2 a false of the VM says nothing": (
        domain(cpu={"dedicatedCpuPlacement": False}),
        type_with("cpu", {"dedicatedCPUPlacement": True}), [],
    ),
    "4.2 isolateEmulatorThread": (
        domain(cpu={"isolateEmulatorThread": True}),
        type_with("cpu", {"isolateEmulatorThread": True}), [f"{D}.cpu.isolateEmulatorThread"],
    ),
    "4.2 numa": (domain(cpu={"numa": NUMA}), type_with("cpu", {"numa": NUMA}), [f"{D}.cpu.numa"]),
    "4.2 realtime":
        (domain(cpu={"realtime": {}}), type_with("cpu", {"realtime": {}}), [f"{D}.cpu.realtime"]),
    "10.6 maxSockets": (
        domain(cpu={"maxSockets": 8}), type_with("cpu", {"maxSockets": 4}),
        [f"{D}.cpu.maxSockets"],
    ),
    "maxSockets of zero is none":
        (domain(cpu={"maxSockets": 8}), type_with("cpu", {"maxSockets": 0}), []),
    "4.2 maxSockets of the VM alone": (domain(cpu={"maxSockets": 8}), SIZED, []),
    "4.2 memory.guest": (domain(memory={"guest": "1Gi"}), SIZED, [f"{D}.memory.guest"]),
    "7.5 memory.guest of the VM alone": (domain(memory={"guest": "1Gi"}), OPEN, []),
    "4.2 hugepages": (
        domain(memory={"hugepages": {"pageSize": "2Mi"}}),
        type_with("memory", {"hugepages": {"pageSize": "2Mi"}}), [f"{D}.memory.hugepages"],
    ),
    "4.2 hugepages of the VM alone":
        (domain(memory={"hugepages": {"pageSize": "2Mi"}}), SIZED, []),
    "4.2 maxGuest": (
        domain(memory={"maxGuest": "4Gi"}), type_with("memory", {"maxGuest": "4Gi"}),
        [f"{D}.memory.maxGuest"],
    ),
    "4.2 maxGuest of the VM alone": (domain(memory={"maxGuest": "4Gi"}), SIZED, []),
    "4.2 ioThreads": (
        domain(ioThreads={"supplementalPoolThreadCount": 1}),
        type_with(ioThreads={"supplementalPoolThreadCount": 2}),
        [f"{D}.ioThreads.supplementalPoolThreadCount"],
    ),
    "4.2 ioThreadsPolicy": (
        domain(ioThreadsPolicy="auto"), type_with(ioThreadsPolicy="auto"),
        [f"{D}.ioThreadsPolicy"],
    ),
    "4.2 launchSecurity":
        (domain(launchSecurity={}), type_with(launchSecurity={"sev": {}}), [f"{D}.launchSecurity"]),
    "4.2 gpus": (
        domain(devices={"gpus": [{"name": "a"}]}), type_with(gpus=[{"name": "b"}]),
        [f"{D}.devices.gpus"],
    ),
    "4.2 hostDevices": (
        domain(devices={"hostDevices": [{"name": "a"}]}), type_with(hostDevices=[{"name": "b"}]),
        [f"{D}.devices.hostDevices"],
    ),
    "4.2 no gpus": (domain(devices={"gpus": []}), type_with(gpus=[{"name": "b"}]), []),
    "10.7 an annotation of another value, as the VM spells it": (
        {"metadata": {"annotations": {"k": "a"}}, "spec": {}}, type_with(annotations={"k": "b"}),
        ["spec.template.metadata.annotations.k"],
    ),
    "4.2 an annotation of the same value": (
        {"metadata": {"annotations": {"k": "a"}}, "spec": {}}, type_with(annotations={"k": "a"}),
        [],
    ),
    "4.2 all of them at once": (
        domain(cpu={"sockets": 1, "model": "a"}, memory={"guest": "1Gi", "maxGuest": "2Gi"}),
        {"cpu": {"guest": 1, "model": "b"}, "memory": {"guest": "1Gi", "maxGuest": "2Gi"}},
        [f"{D}.cpu.sockets", f"{D}.cpu.model", f"{D}.memory.guest", f"{D}.memory.maxGuest"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("template", "instancetype", "paths"), RULES.values(), ids=RULES)
def test_conflicts(template: Object, instancetype: Object, paths: list[str]) -> None:
    assert conflicts(template, instancetype) == paths


def test_a_conflict_is_told_in_upstreams_words() -> None:
    error = conflict_error(f"{D}.cpu.cores")
    assert error.field == f"{D}.cpu.cores"
    assert error.reason == "FieldValueInvalid"
    assert error.message == f"VM field(s) {D}.cpu.cores conflicts with selected instance type"
