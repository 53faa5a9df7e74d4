from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from livevirt.vm.migration.plan import (
    CANCELLED,
    PATIENCE,
    Abort,
    CreateTarget,
    DeletePod,
    End,
    HandOver,
    LetGo,
    Remake,
    Step,
    Untag,
    Wait,
    abandoned,
    failure,
    phases,
    plan,
)
from livevirt.vm.migration.view import Instance, Pod, Seen

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
    later,
    seen,
)

HANDED, PREPARED = an_instance(a_state()), an_instance(a_state(prepared=True))
STARTED = an_instance(a_state(prepared=True, started=True))
ARRIVED = replace(
    an_instance(a_state(prepared=True, started=True, completed=True, ended=NOON)), node="n2"
)
BROKEN = an_instance(a_state(started=True, failed=True, failure="no route", ended=NOON))
PLUGGING = replace(ARRIVED, waits_for="HotMemoryChange")
OTHERS = an_instance(replace(a_state(), uid="m0"))
LEAVING = an_instance(deleting=True)
CANCELLED_EARLY = a_migration("Scheduling", deleting=True)
CANCELLED_LATE = a_migration("Running", deleting=True)
NO_NODE = a_target("Pending", "", unschedulable="0/1 nodes", unschedulable_since=NOON)


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


RULES: dict[str, tuple[Seen, list[str], list[Step]]] = {
    "given a new one, then it is Pending and gets its target": (
        seen(""), ["Pending"], [CreateTarget()],
    ),
    "given that it is not its turn, then it stays Pending": (
        seen(turn=False), [], [Wait(s(5))],
    ),
    "given a system-critical one, then it asks sooner": (
        seen(a_migration(priority=100), turn=False), [], [Wait(s(1))],
    ),
    "given a user-triggered one, then it asks a little sooner": (
        seen(a_migration(priority=50), turn=False), [], [Wait(s(3))],
    ),
    "given a target that was created and is not seen yet, then there is no second": (
        seen(creating=True), [], [],
    ),
    "given failures before it, then it backs off": (
        seen(back_off=s(20)), [], [Wait(s(20))],
    ),
    "given a refused target, then it is left alone for a while": (
        seen(refused=s(2)), [], [Wait(s(2))],
    ),
    "given a guest that does not run yet, then it waits for it": (
        seen(vmi=an_instance(phase="Scheduled")), [], [],
    ),
    "given a volume that is being copied, then it waits": (
        seen(vmi=an_instance(copying="disk")), [], [],
    ),
    "given that its disks keep the guest from moving meanwhile, then it waits as well": (
        seen(vmi=an_instance(copying="disk", unmovable="a disk is copied")), [], [],
    ),
    "given that it has a target already, then the guest is handed over later": (
        seen("Scheduled", an_instance(copying="disk", unmovable="a disk is copied"), READY),
        [], [],
    ),
    "given a target without a node, then Scheduling": (
        seen(target=WAITING), ["Scheduling"], [Wait(s(900))],
    ),
    "given a target nobody has a node for, then it waits less": (
        seen(target=NO_NODE), ["Scheduling"], [Wait(s(300))],
    ),
    "given a target that is ready, then Scheduled, and the guest is handed over": (
        seen("Scheduling", target=READY), ["Scheduled"], [HandOver()],
    ),
    "given a guest that has outgrown its target, then that is made anew": (
        seen("Scheduled", target=replace(READY, short=True)), [], [Remake(READY.name, READY.uid)],
    ),
    "given one that still waits, then so is that": (
        seen(target=replace(WAITING, short=True)),
        ["Scheduling"], [Remake(WAITING.name, WAITING.uid)],
    ),
    "given an outgrown target on its way out, then it waits for that": (
        seen("Scheduled", target=replace(READY, deleting=True), outgrown=True), [], [],
    ),
    "given an outgrown target that is gone, then there is another, whose turn ever it is": (
        seen("Scheduled", turn=False, outgrown=True), [], [CreateTarget()],
    ),
    "given that it was created and is not seen yet, then there is no third": (
        seen("Scheduled", outgrown=True, creating=True), [], [],
    ),
    "given a handoff, then the size of then is what counts": (
        seen("Scheduled", HANDED, replace(READY, short=True)), ["PreparingTarget"], [],
    ),
    "given all at once, then no phase is left out": (
        seen("", target=READY), ["Pending", "Scheduling", "Scheduled"], [HandOver()],
    ),
    "given a guest that stopped running, then it is not handed over": (
        seen("Scheduled", an_instance(phase="Scheduled"), READY), [], [],
    ),
    "given no pod to leave, then it is not handed over": (
        seen("Scheduled", target=READY, source=None), [], [],
    ),
    "given an earlier migration that ended, then it is handed over": (
        seen("Scheduled", an_instance(replace(a_state(), uid="m0", ended=NOON)), READY),
        [], [HandOver()],
    ),
    "given another migration under way, then it is not handed over": (
        seen("Scheduled", OTHERS, READY), [], [],
    ),
    "given the state of a migration nobody works on, then that is stopped": (
        seen("Scheduled", OTHERS, READY, stray=True, stray_target=READY), [], [Abort()],
    ),
    "given such a state without a target, then it is ended": (
        seen("Scheduled", OTHERS, READY, stray=True), [],
        [End("the target pod ended before the migration began")],
    ),
    "given the handoff, then PreparingTarget": (
        seen("Scheduled", HANDED, READY), ["PreparingTarget"], [],
    ),
    "given the target's address, then TargetReady": (
        seen("PreparingTarget", PREPARED, READY), ["TargetReady"], [],
    ),
    "given the start, then Running": (seen("TargetReady", STARTED, READY), ["Running"], []),
    "given the arrival, then Succeeded": (seen("Running", ARRIVED, READY), ["Succeeded"], []),
    "given an arrival that was quicker than we, then Succeeded": (
        seen("Scheduled", ARRIVED, READY),
        ["PreparingTarget", "TargetReady", "Running", "Succeeded"], [],
    ),
    "given a guest that still takes its new size, then it stays Running": (
        seen("Running", PLUGGING, READY), [], [Wait(PATIENCE)],
    ),
    "given a guest that takes too long for that, then Succeeded": (
        seen("Running", PLUGGING, READY, now=NOON + PATIENCE), ["Succeeded"], [],
    ),
    "given a cancel after the arrival, then Succeeded": (
        seen(CANCELLED_LATE, PLUGGING, READY), ["Succeeded"], [],
    ),
    "given a guest that ended after it arrived, then Succeeded": (
        seen("Running", replace(PLUGGING, phase="Succeeded"), READY), ["Succeeded"], [],
    ),
    "given a cancel before the handoff, then Failed": (
        seen(CANCELLED_EARLY, target=READY), ["Failed"], [],
    ),
    "given a cancel after it, then the nodes are asked to stop": (
        seen(CANCELLED_LATE, STARTED, READY), [], [Abort()],
    ),
    "given that they were asked, then they have their time": (
        seen(CANCELLED_LATE, an_instance(a_state(started=True, abort_requested=True)), READY),
        [], [],
    ),
    "given a target lost before the start, then the migration is ended here": (
        seen("PreparingTarget", HANDED, ENDED), [],
        [End("the target pod ended before the migration began")],
    ),
    "given a cancel and a lost target, then it ends as cancelled": (
        seen(
            a_migration("TargetReady", deleting=True),
            an_instance(a_state(abort_requested=True)),
        ),
        [], [End(CANCELLED)],
    ),
    "given a target lost after the start, then only the nodes may tell": (
        seen("Running", STARTED), [], [],
    ),
    "given a failure told by a node, then Failed": (seen("Running", BROKEN, READY), ["Failed"], []),
    "given a guest deleted on the way, then the nodes are told too": (
        seen("Running", replace(STARTED, deleting=True), READY), ["Failed"], [Abort()],
    ),
    "given a failed one with a target that runs, then the target goes": (
        seen("Failed", target=READY), [], [DeletePod("target", "t1")],
    ),
    "given that it is going, then the migration is held": (
        seen("Failed", target=a_target(deleting=True)), [], [],
    ),
    "given that it has ended, then the migration is let go": (
        seen("Failed", target=ENDED), [], [LetGo()],
    ),
    "given a failure after the handoff, then the label goes too": (
        seen("Failed", replace(BROKEN, tagged=True), READY), [],
        [DeletePod("target", "t1"), Untag()],
    ),
    "given nodes that have not ended yet, then their pods are left alone": (
        seen("Failed", STARTED, READY), [], [Abort()],
    ),
    "given a success, then the source goes": (
        seen("Succeeded", replace(ARRIVED, tagged=True), READY), [],
        [DeletePod("source", "s1"), Untag()],
    ),
    "given that it is gone, then the migration is let go": (
        seen("Succeeded", ARRIVED, READY, source=None), [], [LetGo()],
    ),
    "given a guest that came back since, then its pod stays": (
        seen("Succeeded", replace(ARRIVED, node="n1"), READY), [], [LetGo()],
    ),
    "given a migration that is clean, then nothing is left": (
        seen(a_migration("Succeeded", held=False), ARRIVED, READY, source=None), [], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given", "passed", "steps"), RULES.values(), ids=RULES)
def test_phases_and_steps(given: Seen, passed: list[str], steps: list[Step]) -> None:
    assert phases(given) == passed
    assert plan(given) == steps


FAILURES = {
    "given a guest that ended": (seen(vmi=an_instance(phase="Failed")), "the guest has ended"),
    "given an instance that goes": (seen(vmi=LEAVING), "the instance is being deleted"),
    "given a rival": (seen("", rival="first"), "migration first of the instance is under way"),
    "given a guest that cannot migrate any more": (
        seen(vmi=an_instance(unmovable="a disk")), "a disk",
    ),
    "given a target that is gone": (seen("Scheduling"), "the target pod ended before the guest"),
    "given a target that ended": (seen("Scheduled", target=ENDED), "the target pod ended before"),
    "given a target that somebody deletes": (
        seen("Scheduled", target=a_target(deleting=True)), "the target pod ended before the guest",
    ),
    "given no node in time": (
        seen("Scheduling", target=NO_NODE, now=later(seconds=300)),
        "there was no node for the target pod within 300 s: 0/1 nodes",
    ),
    "given a shorter time for that": (
        seen(
            a_migration("Scheduling", unschedulable_timeout=s(3)),
            target=NO_NODE, now=later(seconds=3),
        ),
        "there was no node for the target pod within 3 s: 0/1 nodes",
    ),
    "given a target that never starts": (
        seen("Scheduling", target=a_target("Pending"), now=later(seconds=900)),
        "the target pod did not start within 900 s",
    ),
    "given a state that was lost": (seen("Running", target=READY), "the instance no longer knows"),
    "given a state that was taken over": (seen("Running", OTHERS), "the instance no longer knows"),
    "given what a node tells": (seen("Running", BROKEN, READY), "no route"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "why"), FAILURES.values(), ids=FAILURES)
def test_a_failed_migration_says_why(given: Seen, why: str) -> None:
    assert failure(given).startswith(why)
    assert phases(given) == ["Failed"]


def test_given_no_instance_then_it_fails_unless_the_guest_had_arrived() -> None:
    gone = replace(seen("Running"), vmi=None)
    assert failure(gone) == "the instance is gone"
    assert phases(replace(gone, migration=a_migration("Running", moved=True))) == ["Succeeded"]
    assert plan(replace(gone, migration=a_migration("Failed"))) == [LetGo()]


LEFT: dict[str, tuple[Instance | None, Pod, list[Step]]] = {
    "given no handoff, then the pod goes": (
        an_instance(), READY, [DeletePod("target", "t1")],
    ),
    "given a handoff, then the nodes are asked to stop": (STARTED, READY, [Abort()]),
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
    "given no instance, then the pod goes with it": (None, READY, []),
}  # fmt: skip


@pytest.mark.parametrize(("vmi", "pod", "steps"), LEFT.values(), ids=LEFT)
def test_what_a_removed_migration_leaves(vmi: Instance | None, pod: Pod, steps: list[Step]) -> None:
    assert abandoned(vmi, pod, "m1") == steps


def test_the_source_is_never_deleted_before_the_end() -> None:
    for given, _, _ in RULES.values():
        if given.migration.phase != "Succeeded":
            assert DeletePod(SOURCE.name, SOURCE.uid) not in plan(given)
