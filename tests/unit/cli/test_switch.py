"""When a VM that was switched to another instance type has it."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.api import registry
from livevirt.cli.vm import switch
from livevirt.cli.vm.named import Named
from livevirt.cli.vm.switch import Outcome, Switch
from livevirt.rollout.live_patch import MEMORY, SOCKETS

Object = dict[str, Any]

MICRO = Named(registry.CLUSTER_INSTANCETYPE, "u1.micro")
TAKEN = {"name": "u1.micro", "controllerRevisionRef": {"name": "web-u1.micro-1"}}
GROWN = {SOCKETS: 2, MEMORY: "1Gi"}


def true(type_: str, message: str = "why") -> Object:
    return {"type": type_, "status": "True", "message": message}


def a_vm(*conditions: Object, spec: Object | None = None, **status: Any) -> Object:
    status = {"desiredGeneration": 2, "printableStatus": "Running", **status}
    meta = {"name": "web", "generation": 2}
    spec = {"instancetype": {"name": "u1.micro"}} if spec is None else spec
    return {"metadata": meta, "spec": spec, "status": {**status, "conditions": [*conditions]}}


def a_vmi(
    *conditions: Object, sockets: int = 2, memory: str = "1Gi", has: Object | None = None
) -> Object:
    seen: Object = {"sockets": sockets, "memory": memory} | (has or {})
    return {
        "spec": {"domain": {"cpu": {"sockets": sockets, "cores": 2}, "memory": {"guest": memory}}},
        "status": {
            "phase": "Running",
            "conditions": [*conditions],
            "currentCPUTopology": {"sockets": seen["sockets"]},
            "memory": {"guestCurrent": seen["memory"]},
        },
    }


OUTCOMES: dict[str, tuple[Object, Object | None, Object, Outcome | None]] = {
    "the guest has all of it": (a_vm(), a_vmi(), GROWN, Outcome.LIVE),
    "the same size in other digits": (
        a_vm(), a_vmi(has={"memory": "1024Mi"}), GROWN, Outcome.LIVE,
    ),
    "nothing was to change": (a_vm(), a_vmi(), {}, Outcome.LIVE),
    "the instance does not ask for it yet": (a_vm(), a_vmi(sockets=1), GROWN, None),
    "the guest has fewer sockets": (a_vm(), a_vmi(has={"sockets": 1}), GROWN, None),
    "the guest has less memory": (a_vm(), a_vmi(has={"memory": "512Mi"}), GROWN, None),
    "CPUs are still being plugged": (a_vm(), a_vmi(true("HotVCPUChange")), GROWN, None),
    "the pod still holds more": (a_vm(), a_vmi(true("HotMemoryChange")), GROWN, None),
    "a restart is required": (a_vm(true("RestartRequired")), a_vmi(), {}, Outcome.RESTART),
    "it could not be looked up": (a_vm(true("Failure")), a_vmi(), {}, Outcome.FAILED),
    "no guest runs": (a_vm(), None, {}, Outcome.AT_START),
    "the guest has ended": (
        a_vm(), {"spec": {}, "status": {"phase": "Succeeded"}}, {}, Outcome.AT_START,
    ),
    "the guest has not started yet": (
        a_vm(), {"spec": {}, "status": {"phase": "Scheduling"}}, {}, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("vm", "vmi", "sizes", "end"), OUTCOMES.values(), ids=OUTCOMES)
def test_outcomes(vm: Object, vmi: Object | None, sizes: Object, end: Outcome | None) -> None:
    assert switch.outcome(vm, vmi, sizes) is end


SEEN = {
    "the controller has not looked": (a_vm(desiredGeneration=1, instancetypeRef=TAKEN), False),
    "it has not taken a revision": (a_vm(), False),
    "it has one of the type before": (
        a_vm(instancetypeRef={**TAKEN, "name": "u1.nano"}), False,
    ),
    "it knows the name only": (a_vm(instancetypeRef={"name": "u1.micro"}), False),
    "it has": (a_vm(instancetypeRef=TAKEN), True),
    "it has written the size into the VM": (a_vm(spec={}), True),
}  # fmt: skip


@pytest.mark.parametrize(("vm", "seen"), SEEN.values(), ids=SEEN)
def test_when_the_controller_has_looked(vm: Object, seen: bool) -> None:
    assert Switch(MICRO).is_seen(vm, 2) is seen


MADE = {
    "the same": ({"name": "u1.micro"}, True),
    "the same with its kind": (
        {"name": "u1.micro", "kind": "VirtualMachineClusterInstancetype"}, True,
    ),
    "one of the namespace": ({"name": "u1.micro", "kind": "virtualmachineinstancetype"}, False),
    "another": ({"name": "u1.nano"}, False),
    "none": (None, False),
}  # fmt: skip


@pytest.mark.parametrize(("matcher", "made"), MADE.values(), ids=MADE)
def test_whether_the_vm_refers_to_it_already(matcher: Object | None, made: bool) -> None:
    assert Switch(MICRO).is_made({"spec": {"instancetype": matcher}}) is made


def test_what_was_pinned_or_inferred_before_is_let_go() -> None:
    given = Named(registry.PREFERENCE, "mine")
    assert Switch(given).patch() == {
        "spec": {
            "preference": {
                "kind": "virtualmachinepreference",
                "name": "mine",
                "revisionName": None,
                "inferFromVolume": None,
                "inferFromVolumeFailurePolicy": None,
            }
        }
    }
    assert Switch(given).refresh() == {"status": {"preferenceRef": None}}


def test_only_sizes_that_come_live_are_waited_for() -> None:
    changes = [
        {"path": SOCKETS, "to": 2, "verdict": "LiveAfterResize"},
        {"path": MEMORY, "to": "1Gi", "verdict": "Restart"},
        {"path": "spec.template.spec.nodeSelector", "to": {}, "verdict": "Live"},
    ]
    assert switch.sizes({"changes": changes}) == {SOCKETS: 2}


TOLD = {
    "live": (
        Outcome.LIVE, a_vm(), a_vmi(), "VM web runs with instance type u1.micro: 4 vCPUs, 1Gi",
    ),
    "restart": (
        Outcome.RESTART, a_vm(true("RestartRequired", "1 field waits")), a_vmi(),
        "VM web needs a restart for instance type u1.micro: 1 field waits; `virtctl restart web`",
    ),
    "stopped": (
        Outcome.AT_START, a_vm(), None,
        "VM web does not run; it starts with instance type u1.micro",
    ),
    "failed": (
        Outcome.FAILED, a_vm(true("Failure", "gone")), None,
        "VM web cannot be switched to instance type u1.micro: gone",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("end", "vm", "vmi", "text"), TOLD.values(), ids=TOLD)
def test_what_is_told(end: Outcome, vm: Object, vmi: Object | None, text: str) -> None:
    assert switch.told(end, vm, vmi, MICRO) == text


def test_while_it_goes_on_the_condition_is_shown() -> None:
    vmi = a_vmi(true("HotMemoryChange", "the guest has taken 768Mi of 1Gi"))
    assert switch.state(a_vm(), vmi) == "HotMemoryChange: the guest has taken 768Mi of 1Gi"
    assert switch.state(a_vm(), a_vmi()) == "Running"
