from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from livevirt.kube.objects import times
from livevirt.kube.objects.request import Object
from livevirt.vm.lifecycle.vm.snapshot import Guest, Machine, Request, StartFailure, VmSnapshot

NOON = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
UID = "vm-uid"


def a_machine(strategy: str = "Always", **rest: Any) -> Machine:
    return Machine("web", strategy, **{"known_strategy": strategy, **rest})


def a_guest(phase: str = "Running", **rest: Any) -> Guest:
    return Guest("g1", phase, **{"ran": phase == "Running", **rest})


def seen(vm: Machine, guest: Guest | None = None, **volumes: str) -> VmSnapshot:
    return VmSnapshot(vm, guest, NOON, volumes)


def failed(seconds: int, count: int = 1) -> StartFailure:
    return StartFailure(count, "g0", NOON + timedelta(seconds=seconds))


START, STOP = Request("Start"), Request("Stop", "g1")


def a_vm(**status: Any) -> Object:
    vm: Object = {
        "metadata": {"name": "web", "namespace": "default", "uid": UID, "generation": 3},
        "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}}}},
    }
    return {**vm, "status": status} if status else vm


def a_vmi(phase: str = "Running", *conditions: Object, **status: Any) -> Object:
    owner = {"kind": "VirtualMachine", "name": "web", "uid": UID, "controller": True}
    stamp = times.format_time(NOON)
    passed = [{"phase": phase, "phaseTransitionTimestamp": stamp}]
    return {
        "metadata": {
            "name": "web",
            "namespace": "default",
            "uid": "g1",
            "ownerReferences": [owner],
            "annotations": {"kubevirt.io/vm-generation": "2"},
        },
        "spec": {"domain": {"devices": {}}},
        "status": {
            "phase": phase,
            "conditions": list(conditions),
            "phaseTransitionTimestamps": passed,
            **status,
        },
    }
