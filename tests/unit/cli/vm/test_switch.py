"""When a VM that was switched to another instance type has it."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.cli.vm import switch
from livevirt.cli.vm.documents import Named
from livevirt.cli.vm.switch import Outcome, Planned, Since, Switch
from livevirt.vm import kinds
from livevirt.vm.instancetypes.rules.conflicts import ANNOTATIONS
from livevirt.vm.verdict.comparison import MEMORY, SOCKETS

Object = dict[str, Any]

MICRO = Named(kinds.CLUSTER_INSTANCETYPE, "u1.micro")
TAKEN = {"name": "u1.micro", "controllerRevisionRef": {"name": "web-u1.micro-1"}}
GROWN = Planned(2, {SOCKETS: 2, MEMORY: "1Gi"})
SAME, RESTART = Planned(2), Planned(2, restart=True)
IN_WINDOW = [{"path": MEMORY, "appliesAt": "2026-11-21T01:00:00Z"}]


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


OUTCOMES: dict[str, tuple[Object, Object | None, Planned | None, Outcome | None]] = {
    "the guest has all of it": (a_vm(), a_vmi(), GROWN, Outcome.LIVE),
    "the same size in other digits": (
        a_vm(), a_vmi(has={"memory": "1024Mi"}), GROWN, Outcome.LIVE,
    ),
    "nothing was to change": (a_vm(), a_vmi(), SAME, Outcome.LIVE),
    "the instance does not ask for it yet": (a_vm(), a_vmi(sockets=1), GROWN, None),
    "the guest has fewer sockets": (a_vm(), a_vmi(has={"sockets": 1}), GROWN, None),
    "the guest has less memory": (a_vm(), a_vmi(has={"memory": "512Mi"}), GROWN, None),
    "CPUs are still being plugged": (a_vm(), a_vmi(true("HotVCPUChange")), GROWN, None),
    "the pod still holds more": (a_vm(), a_vmi(true("HotMemoryChange")), GROWN, None),
    "a restart is required": (a_vm(true("RestartRequired")), a_vmi(), RESTART, Outcome.RESTART),
    "a restart is needed and not said so yet": (a_vm(), a_vmi(), RESTART, None),
    "what is said of a restart was said before": (
        a_vm(true("RestartRequired")), a_vmi(), SAME, Outcome.LIVE,
    ),
    "what waits for a restart is an edit made since": (
        a_vm(true("RestartRequired")), a_vmi(), Planned(1), Outcome.RESTART,
    ),
    "an edit made since has set it back": (
        a_vm(), a_vmi(), Planned(1, restart=True), Outcome.LIVE,
    ),
    "nothing was planned": (a_vm(true("RestartRequired")), a_vmi(), None, Outcome.RESTART),
    "it could not be looked up": (a_vm(true("Failure")), a_vmi(), SAME, Outcome.FAILED),
    "it could not be looked up, and something waits from before": (
        a_vm(true("Failure"), true("RestartRequired")), a_vmi(), SAME, Outcome.FAILED,
    ),
    "it waits for the maintenance window": (
        a_vm(pendingChanges=IN_WINDOW), a_vmi(), SAME, Outcome.WINDOW,
    ),
    "a part waits for the window, a part for a restart": (
        a_vm(true("RestartRequired"), pendingChanges=IN_WINDOW), a_vmi(), RESTART, Outcome.RESTART,
    ),
    "no guest runs": (a_vm(), None, SAME, Outcome.AT_START),
    "the guest has ended": (
        a_vm(), {"spec": {}, "status": {"phase": "Succeeded"}}, SAME, Outcome.AT_START,
    ),
    "the guest has not started yet": (
        a_vm(), {"spec": {}, "status": {"phase": "Scheduling"}}, SAME, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("vm", "vmi", "plan", "end"), OUTCOMES.values(), ids=OUTCOMES)
def test_outcomes(
    vm: Object, vmi: Object | None, plan: Planned | None, end: Outcome | None
) -> None:
    assert switch.outcome(vm, vmi, Since(2), plan) is end


GONE = {**true("Failure"), "reason": "FailedFindInstancetype"}
FAILED = {
    "nothing is wrong": (a_vm(), Since(2), False),
    "something is": (a_vm(GONE), Since(2), True),
    "it was said of the VM before": (a_vm(GONE, desiredGeneration=1), Since(2), False),
    "it was so before the reference was let go": (a_vm(GONE), Since(2, GONE), False),
    "something else is": (a_vm({**GONE, "reason": "Conflict"}), Since(2, GONE), True),
}


@pytest.mark.parametrize(("vm", "since", "failed"), FAILED.values(), ids=FAILED)
def test_only_what_is_said_since_the_switch_fails_it(
    vm: Object, since: Since, failed: bool
) -> None:
    assert since.failed(vm) is failed


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
    given = Named(kinds.PREFERENCE, "mine")
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
    assert switch.planned({"changes": changes}, 7) == Planned(7, {SOCKETS: 2}, restart=True)
    assert switch.planned({"changes": changes[:1]}, 7) == Planned(7, {SOCKETS: 2})


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
    assert switch.outcome_message(end, vm, vmi, MICRO) == text


def test_while_it_goes_on_the_condition_is_shown() -> None:
    vmi = a_vmi(true("HotMemoryChange", "the guest has taken 768Mi of 1Gi"))
    assert switch.state(a_vm(), vmi) == "HotMemoryChange: the guest has taken 768Mi of 1Gi"
    assert switch.state(a_vm(), a_vmi()) == "Running"


def test_given_fields_to_remove_then_the_patch_removes_them_and_nothing_else() -> None:
    paths = ("spec.template.spec.domain.memory.guest", f"{ANNOTATIONS}.example.com/size")
    patch = Switch(MICRO).patch(paths)["spec"]
    assert patch["instancetype"]["name"] == "u1.micro"
    assert patch["template"] == {
        "spec": {"domain": {"memory": {"guest": None}}},
        "metadata": {"annotations": {"example.com/size": None}},
    }


def test_what_a_vm_and_a_preference_both_set_is_no_conflict() -> None:
    vm = {"spec": {"template": {"spec": {"domain": {"memory": {"guest": "1Gi"}}}}}}
    obj = {"spec": {"memory": {"guest": "2Gi"}}}
    assert Switch(MICRO).conflicts(vm, obj) == ["spec.template.spec.domain.memory.guest"]
    assert Switch(Named(kinds.CLUSTER_PREFERENCE, "fedora")).conflicts(vm, obj) == []


@pytest.mark.parametrize(
    ("reason", "found"), [("NoGuestAgent", True), ("NotReportedByAgent", True), ("", False)]
)
def test_a_size_that_nobody_confirms_is_named(reason: str, found: bool) -> None:
    unsure = {"type": "SizeConfirmed", "status": "False", "reason": reason}
    assert bool(switch.unconfirmed(a_vmi(*([unsure] if reason else [])))) is found
