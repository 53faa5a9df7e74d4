from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from livevirt.vm.migration.phases import (
    CANCELLED,
    FAILURES,
    ORDER,
    RESIZE_TIMEOUT,
    TRANSITIONS,
    failed_by,
    failure,
    phases,
)
from livevirt.vm.migration.plan import (
    PLANS,
    TARGET_LOST,
    CreateTarget,
    DeletePod,
    FailState,
    HandOver,
    RemoveFinalizer,
    RemoveTargetLabel,
    ReplaceTarget,
    RequestAbort,
    Step,
    Wait,
    abandoned,
    plan,
)
from livevirt.vm.migration.snapshot import Instance, Pod, Snapshot

from .migration_builders import (
    ENDED,
    NOON,
    READY,
    SOURCE,
    WAITING,
    a_migration,
    a_state,
    a_target,
    an_instance,
    at,
    later,
)

HANDED, PREPARED = an_instance(a_state()), an_instance(a_state(prepared=True))
STARTED = an_instance(a_state(prepared=True, started=True))
ARRIVED = replace(
    an_instance(a_state(prepared=True, started=True, completed=True, ended=NOON)), node="n2"
)
BROKEN = an_instance(a_state(started=True, failed=True, failure="no route", ended=NOON))
PLUGGING = replace(ARRIVED, pending_change="HotMemoryChange")
OTHERS = an_instance(replace(a_state(), uid="m0"))
LEAVING = an_instance(deleting=True)
COPYING = an_instance(copying_volume="disk", not_migratable="a disk is copied")
CANCELLED_EARLY = a_migration("Scheduling", deleting=True)
CANCELLED_LATE = a_migration("Running", deleting=True)
NO_NODE = a_target("Pending", "", unschedulable="0/1 nodes", unschedulable_since=NOON)


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


RULES: dict[str, tuple[Snapshot, list[str], list[Step]]] = {
    "given a new one, then it is Pending and gets its target": (
        at(""), ["Pending"], [CreateTarget()],
    ),
    "given that it is not its turn, then it stays Pending": (
        at(admitted=False), [], [Wait(s(5))],
    ),
    "given a system-critical one, then it asks sooner": (
        at(a_migration(priority=100), admitted=False), [], [Wait(s(1))],
    ),
    "given a user-triggered one, then it asks a little sooner": (
        at(a_migration(priority=50), admitted=False), [], [Wait(s(3))],
    ),
    "given a target that was created and is not seen yet, then there is no second": (
        at(target_expected=True), [], [],
    ),
    "given failures before it, then it backs off": (
        at(back_off=s(20)), [], [Wait(s(20))],
    ),
    "given a refused target, then it is left alone for a while": (
        at(retry_in=s(2)), [], [Wait(s(2))],
    ),
    "given a guest that does not run yet, then it waits for it": (
        at(vmi=an_instance(phase="Scheduled")), [], [],
    ),
    "given a volume that is being copied, then it waits": (
        at(vmi=an_instance(copying_volume="disk")), [], [],
    ),
    "given that its disks keep the guest from moving meanwhile, then it waits as well": (
        at(vmi=COPYING), [], [],
    ),
    "given that it has a target already, then the guest is handed over later": (
        at("Scheduled", COPYING, READY), [], [],
    ),
    "given a target without a node, then Scheduling": (
        at(target=WAITING), ["Scheduling"], [Wait(s(900))],
    ),
    "given a target nobody has a node for, then it waits less": (
        at(target=NO_NODE), ["Scheduling"], [Wait(s(300))],
    ),
    "given a target that is ready, then Scheduled, and the guest is handed over": (
        at("Scheduling", target=READY), ["Scheduled"], [HandOver()],
    ),
    "given a guest that has outgrown its target, then that is made anew": (
        at("Scheduled", target=replace(READY, too_small=True)),
        [], [ReplaceTarget(READY.name, READY.uid)],
    ),
    "given one that still waits, then so is that": (
        at(target=replace(WAITING, too_small=True)),
        ["Scheduling"], [ReplaceTarget(WAITING.name, WAITING.uid)],
    ),
    "given an outgrown target on its way out, then it waits for that": (
        at("Scheduled", target=replace(READY, deleting=True), target_replaced=True), [], [],
    ),
    "given an outgrown target that is gone, then there is another, whose turn ever it is": (
        at("Scheduled", admitted=False, target_replaced=True), [], [CreateTarget()],
    ),
    "given that it was created and is not seen yet, then there is no third": (
        at("Scheduled", target_replaced=True, target_expected=True), [], [],
    ),
    "given a handoff, then the size of then is what counts": (
        at("Scheduled", HANDED, replace(READY, too_small=True)), ["PreparingTarget"], [],
    ),
    "given all at once, then no phase is left out": (
        at("", target=READY), ["Pending", "Scheduling", "Scheduled"], [HandOver()],
    ),
    "given a guest that stopped running, then it is not handed over": (
        at("Scheduled", an_instance(phase="Scheduled"), READY), [], [],
    ),
    "given no pod to leave, then it is not handed over": (
        at("Scheduled", target=READY, source=None), [], [],
    ),
    "given an earlier migration that ended, then it is handed over": (
        at("Scheduled", an_instance(replace(a_state(), uid="m0", ended=NOON)), READY),
        [], [HandOver()],
    ),
    "given another migration under way, then it is not handed over": (
        at("Scheduled", OTHERS, READY), [], [],
    ),
    "given the state of a migration nobody works on, then that is stopped": (
        at("Scheduled", OTHERS, READY, orphaned=True, orphaned_target=READY), [], [RequestAbort()],
    ),
    "given such a state without a target, then it is ended": (
        at("Scheduled", OTHERS, READY, orphaned=True), [],
        [FailState(TARGET_LOST)],
    ),
    "given the handoff, then PreparingTarget": (
        at("Scheduled", HANDED, READY), ["PreparingTarget"], [],
    ),
    "given the target's address, then TargetReady": (
        at("PreparingTarget", PREPARED, READY), ["TargetReady"], [],
    ),
    "given the start, then Running": (at("TargetReady", STARTED, READY), ["Running"], []),
    "given the arrival, then Succeeded": (at("Running", ARRIVED, READY), ["Succeeded"], []),
    "given an arrival that was quicker than we, then Succeeded": (
        at("Scheduled", ARRIVED, READY),
        ["PreparingTarget", "TargetReady", "Running", "Succeeded"], [],
    ),
    "given a guest that still takes its new size, then it stays Running": (
        at("Running", PLUGGING, READY), [], [Wait(RESIZE_TIMEOUT)],
    ),
    "given a guest that takes too long for that, then Succeeded": (
        at("Running", PLUGGING, READY, now=NOON + RESIZE_TIMEOUT), ["Succeeded"], [],
    ),
    "given a cancel after the arrival, then Succeeded": (
        at(CANCELLED_LATE, PLUGGING, READY), ["Succeeded"], [],
    ),
    "given a guest that ended after it arrived, then Succeeded": (
        at("Running", replace(PLUGGING, phase="Succeeded"), READY), ["Succeeded"], [],
    ),
    "given a cancel before the handoff, then Failed": (
        at(CANCELLED_EARLY, target=READY), ["Failed"], [],
    ),
    "given a cancel after it, then the nodes are asked to stop": (
        at(CANCELLED_LATE, STARTED, READY), [], [RequestAbort()],
    ),
    "given that they were asked, then they have their time": (
        at(CANCELLED_LATE, an_instance(a_state(started=True, abort_requested=True)), READY),
        [], [],
    ),
    "given a target lost before the start, then the migration is ended here": (
        at("PreparingTarget", HANDED, ENDED), [],
        [FailState(TARGET_LOST)],
    ),
    "given a cancel and a lost target, then it ends as cancelled": (
        at(
            a_migration("TargetReady", deleting=True),
            an_instance(a_state(abort_requested=True)),
        ),
        [], [FailState(CANCELLED)],
    ),
    "given a target lost after the start, then only the nodes may tell": (
        at("Running", STARTED), [], [],
    ),
    "given a failure told by a node, then Failed": (at("Running", BROKEN, READY), ["Failed"], []),
    "given a guest deleted on the way, then the nodes are told too": (
        at("Running", replace(STARTED, deleting=True), READY), ["Failed"], [RequestAbort()],
    ),
    "given a failed one with a target that runs, then the target goes": (
        at("Failed", target=READY), [], [DeletePod("target", "t1")],
    ),
    "given that it is going, then the migration is held": (
        at("Failed", target=a_target(deleting=True)), [], [],
    ),
    "given that it has ended, then the migration is let go": (
        at("Failed", target=ENDED), [], [RemoveFinalizer()],
    ),
    "given a failure after the handoff, then the label goes too": (
        at("Failed", replace(BROKEN, target_label=True), READY), [],
        [DeletePod("target", "t1"), RemoveTargetLabel()],
    ),
    "given nodes that have not ended yet, then their pods are left alone": (
        at("Failed", STARTED, READY), [], [RequestAbort()],
    ),
    "given a success, then the source goes": (
        at("Succeeded", replace(ARRIVED, target_label=True), READY), [],
        [DeletePod("source", "s1"), RemoveTargetLabel()],
    ),
    "given that it is gone, then the migration is let go": (
        at("Succeeded", ARRIVED, READY, source=None), [], [RemoveFinalizer()],
    ),
    "given a guest that came back since, then its pod stays": (
        at("Succeeded", replace(ARRIVED, node="n1"), READY), [], [RemoveFinalizer()],
    ),
    "given a migration that is clean, then nothing is left": (
        at(a_migration("Succeeded", finalizer=False), ARRIVED, READY, source=None), [], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given", "passed", "steps"), RULES.values(), ids=RULES)
def test_phases_and_steps(given: Snapshot, passed: list[str], steps: list[Step]) -> None:
    assert phases(given) == passed
    assert plan(given) == steps


FAILURES_OF = {
    "given a cancel before the handoff": (at(CANCELLED_EARLY, target=READY), "Cancelled"),
    "given a guest that ended": (at(vmi=an_instance(phase="Failed")), "GuestEnded"),
    "given an instance that goes": (at(vmi=LEAVING), "InstanceDeleted"),
    "given a rival": (at("", conflicting="first"), "Conflicting"),
    "given a guest that cannot migrate any more": (
        at(vmi=an_instance(not_migratable="a disk")), "NotMigratable",
    ),
    "given a target that is gone": (at("Scheduling"), "TargetLost"),
    "given a target that ended": (at("Scheduled", target=ENDED), "TargetLost"),
    "given a target that somebody deletes": (
        at("Scheduled", target=a_target(deleting=True)), "TargetLost",
    ),
    "given no node in time": (
        at("Scheduling", target=NO_NODE, now=later(seconds=300)),
        "TargetTimedOut",
    ),
    "given a shorter time for that": (
        at(
            a_migration("Scheduling", unschedulable_timeout=s(3)),
            target=NO_NODE, now=later(seconds=3),
        ),
        "TargetTimedOut",
    ),
    "given a target that never starts": (
        at("Scheduling", target=a_target("Pending"), now=later(seconds=900)),
        "TargetTimedOut",
    ),
    "given a state that was lost": (at("Running", target=READY), "StateLost"),
    "given a state that was taken over": (at("Running", OTHERS), "StateLost"),
    "given what a node tells": (at("Running", BROKEN, READY), "NodesFailed"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "name"), FAILURES_OF.values(), ids=FAILURES_OF)
def test_a_failed_migration_has_a_reason(given: Snapshot, name: str) -> None:
    found = failed_by(given)
    assert found is not None
    assert found.name == name
    assert failure(given)
    assert phases(given) == ["Failed"]


def test_every_failure_has_its_row() -> None:
    rows = {name for _, name in FAILURES_OF.values()}
    assert {each.name for each in FAILURES} == rows | {"InstanceGone"}


def test_given_no_instance_then_it_fails_unless_the_guest_had_arrived() -> None:
    gone = replace(at("Running"), vmi=None)
    assert [each.name for each in [failed_by(gone)] if each] == ["InstanceGone"]
    assert phases(replace(gone, migration=a_migration("Running", moved=True))) == ["Succeeded"]
    assert plan(replace(gone, migration=a_migration("Failed"))) == [RemoveFinalizer()]


LEFT: dict[str, tuple[Instance, Pod, list[Step]]] = {
    "given no handoff, then the pod goes": (
        an_instance(), READY, [DeletePod("target", "t1")],
    ),
    "given a handoff, then the nodes are asked to stop": (STARTED, READY, [RequestAbort()]),
    "given an arrival, then the guest keeps its pod": (ARRIVED, READY, []),
    "given an arrival and an ended guest, then its pod stays to tell": (
        replace(ARRIVED, phase="Failed"), ENDED, [],
    ),
    "given a failure, then the dead pod goes": (BROKEN, ENDED, [DeletePod("target", "t1")]),
    "given another pod on the guest's node, then only a dead one goes": (
        replace(BROKEN, node="n2"), ENDED, [DeletePod("target", "t1")],
    ),
    "given the pod of a guest that nobody has told of, then it stays": (
        replace(BROKEN, node="n2"), READY, [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("vmi", "pod", "steps"), LEFT.values(), ids=LEFT)
def test_what_a_removed_migration_leaves(vmi: Instance, pod: Pod, steps: list[Step]) -> None:
    assert abandoned(vmi, pod, "m1") == steps


def test_the_source_is_never_deleted_before_the_end() -> None:
    for given, _, _ in RULES.values():
        if given.migration.phase != "Succeeded":
            assert DeletePod(SOURCE.name, SOURCE.uid) not in plan(given)


def test_every_phase_leads_to_the_next_and_has_a_plan() -> None:
    assert [each.phase for each in TRANSITIONS] == list(ORDER[:-1])
    assert [each.next for each in TRANSITIONS] == list(ORDER[1:])
    assert {*PLANS} == {*ORDER[1:], "Failed"}


def test_a_condition_includes_those_of_all_later_phases() -> None:
    for given, _, _ in RULES.values():
        hold = [each.condition(given) for each in TRANSITIONS]
        assert hold == sorted(hold, reverse=True)
