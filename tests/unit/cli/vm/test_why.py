"""What `virtctl why` explains, from the status of a VM and its instance."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.cli.vm import why
from livevirt.vm.sizing import hot_change
from livevirt.vm.sizing.guest_size import ADVICE, Cause

Object = dict[str, Any]


def a_condition(type_: str, reason: str = "", status: str = "True") -> Object:
    return {"type": type_, "status": status, "reason": reason, "message": "the message"}


def a_vm(*conditions: Object, created: bool = True) -> Object:
    status = {"printableStatus": "Running", "created": created, "conditions": [*conditions]}
    return {"metadata": {"name": "web"}, "status": status}


def a_vmi(*conditions: Object, **status: Any) -> Object:
    domain = {"cpu": {"sockets": 2, "maxSockets": 4}, "memory": {"guest": "1536Mi"}}
    has = {
        "phase": "Running",
        "nodeName": "node-1",
        "currentCPUTopology": {"sockets": 2, "cores": 1, "threads": 1, "present": 2},
        "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1536Mi", "guestPlugged": "1536Mi"},
    }
    return {
        "metadata": {"name": "web"},
        "spec": {"domain": domain},
        "status": {**has, **status, "conditions": [*conditions]},
    }


def text(vm: Object, vmi: Object | None) -> str:
    return "\n".join(why.explain(vm, vmi))


def test_a_guest_that_has_everything_waits_for_nothing() -> None:
    lines = text(a_vm(), a_vmi()).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["web", "sockets", "memory", "waiting"]
    assert "node-1" in lines[0]


def test_a_vm_without_a_guest_says_so() -> None:
    lines = text(a_vm(created=False), None).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["web", "guest", "waiting"]


def test_edits_that_wait_for_the_maintenance_window_are_shown_with_its_time() -> None:
    vm = a_vm()
    vm["status"]["pendingChanges"] = [{"path": "a", "appliesAt": "2026-11-21T01:00:00Z"}]
    lines = text(vm, a_vmi()).splitlines()
    assert [line.partition(":")[0] for line in lines[-2:]] == ["waiting", "to do"]
    assert "2026-11-21T01:00:00Z" in lines[-2]


def test_memory_that_stays_offline_is_shown_with_the_fix() -> None:
    memory = {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestPlugged": "1536Mi"}
    vmi = a_vmi(a_condition("HotMemoryChange", hot_change.NOT_ACCEPTING), memory=memory)
    shown = text(a_vm(), vmi)
    assert ADVICE[Cause.MEMORY_OFFLINE] in shown
    assert "1Gi in use, 1536Mi plugged in, 1536Mi desired" in shown


CPUS = {"offline": (2, Cause.CPUS_OFFLINE), "not registered": (1, Cause.CPUS_NOT_REGISTERED)}


@pytest.mark.parametrize(("present", "cause"), CPUS.values(), ids=CPUS)
def test_cpus_that_the_guest_does_not_use_are_shown_with_the_fix(
    present: int, cause: Cause
) -> None:
    topology = {"sockets": 1, "cores": 1, "threads": 1, "present": present, "confirmed": True}
    vmi = a_vmi(a_condition("HotVCPUChange", hot_change.NOT_ACCEPTING), currentCPUTopology=topology)
    assert ADVICE[cause] in text(a_vm(), vmi)


@pytest.mark.parametrize("reason", [*hot_change.HELD, hot_change.WAITING, hot_change.PLUGGING])
def test_every_reason_has_something_to_do(reason: str) -> None:
    assert reason in why._STEPS
    shown = text(a_vm(), a_vmi(a_condition("HotVCPUChange", reason)))
    assert why._STEPS[reason] in shown
    assert "waiting: for nothing" not in shown


def test_an_unconfirmed_size_names_the_agent() -> None:
    unsure = a_condition("SizeConfirmed", "NoGuestAgent", "False")
    vmi = a_vmi(unsure, currentCPUTopology={"sockets": 2, "confirmed": False})
    shown = text(a_vm(), vmi)
    assert "2 plugged in, not confirmed" in shown
    assert "qemu-guest-agent" in shown


def test_a_restart_that_is_required_is_shown_with_the_command() -> None:
    assert "virtctl restart web" in text(a_vm(a_condition("RestartRequired")), a_vmi())
