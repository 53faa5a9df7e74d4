from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.node import exit_record
from livevirt.node.exit_record import ExitRecord
from livevirt.node.plan import (
    LOOK_AGAIN,
    PRESS_AGAIN,
    CallOff,
    Clean,
    Forget,
    Leave,
    PodSnapshot,
    Press,
    Quit,
    Record,
    Remove,
    Report,
    Spawn,
    Stand,
    Start,
    Step,
    Wait,
    plan,
)
from livevirt.qemu.lifecycle import Standing

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = "2026-01-01T12:00:00Z"
LATER = NOON + timedelta(minutes=1)
ENDED = exit_record.destroyed(AT)
RUNS = Standing("running", "running")
OFF = Standing("shutdown", "guest-shutdown", True)
COMING, GONE = Standing("migrating", "inmigrate"), Standing("migrating", "postmigrate")


def seen(wanted: str = "run", **more: object) -> PodSnapshot:
    return PodSnapshot(wanted=wanted, now=NOON, **more)  # type: ignore[arg-type]


def alive(wanted: str = "run", **more: object) -> PodSnapshot:
    facts = {"intent": True, "spawned": True, "locked": True, "known": True, "standing": RUNS}
    return seen(wanted, **{**facts, **more})


def dead(wanted: str = "run", **more: object) -> PodSnapshot:
    return seen(wanted, **{"intent": True, "spawned": True, **more})


def crashed(complaint: str = "") -> ExitRecord:
    return exit_record.vanished(AT, oom_killed=False, rebooted=False, complaint=complaint)


RULES: dict[str, tuple[PodSnapshot, list[Step]]] = {
    "given a new pod, then it is started": (seen(), [Start(), Wait(NOON)]),
    "given its VMI goes away, then it is not started": (seen(startable=False), []),
    "given an agent died between intent and spawn, then what it meant is spawned": (
        seen(intent=True),
        [Spawn(), Wait(NOON)],
    ),
    "given a launcher is under way, then nothing is done but wait": (
        seen(intent=True, locked=True),
        [Wait(NOON + LOOK_AGAIN)],
    ),
    "given a running guest, then it is reported": (alive(), [Report()]),
    "given the guest powered off, then why is recorded before QEMU is quit": (
        alive(standing=OFF),
        [Record(exit_record.of_standing(OFF, AT)), Quit(), Wait(NOON)],
    ),
    "given an agent died between record and quit, then the record stands": (
        alive(ending=ENDED, standing=OFF),
        [Quit(), Wait(NOON)],
    ),
    "given QEMU vanished, then that is a failure": (
        dead(complaint="Aborted"),
        [Record(crashed("Aborted")), Clean(), Report()],
    ),
    "given the machine restarted before the spawn was noted, then it has failed too": (
        seen(intent=True, rebooted=True),
        [
            Record(exit_record.vanished(AT, oom_killed=False, rebooted=True, complaint="")),
            Clean(),
            Report(),
        ],
    ),
    "given an ended pod is kept, then only its logs are": (
        dead("ended", ending=ENDED),
        [Clean(), Report()],
    ),
    "given a pod is deleted, then the power button is pressed": (
        alive("stop", deadline=LATER),
        [Report(), Press(), Wait(NOON + PRESS_AGAIN)],
    ),
    "given it was pressed just now, then the guest has time": (
        alive("stop", deadline=LATER, pressed=NOON - timedelta(seconds=1)),
        [Report(), Wait(NOON + PRESS_AGAIN - timedelta(seconds=1))],
    ),
    "given it was pressed and missed, then it is pressed again": (
        alive("stop", deadline=LATER, pressed=NOON - PRESS_AGAIN),
        [Report(), Press(), Wait(NOON + PRESS_AGAIN)],
    ),
    "given the grace period ends first, then that is waited for": (
        alive("stop", deadline=NOON + timedelta(seconds=1)),
        [Report(), Press(), Wait(NOON + timedelta(seconds=1))],
    ),
    "given the grace period is over, then the guest is switched off": (
        alive("stop", deadline=NOON),
        [Record(ENDED), Quit(), Wait(NOON)],
    ),
    "given the pod is no more, then its guest goes at once": (
        alive("gone"),
        [Record(ENDED), Quit(), Wait(NOON)],
    ),
    "given a deleted pod's guest has ended, then the pod goes, and what is known of it last": (
        dead("stop", ending=ENDED),
        [Clean(), Report(), Remove(), Forget()],
    ),
    "given a pod is deleted before it ran, then it is just removed": (
        seen("stop"),
        [Clean(), Remove(), Forget()],
    ),
    "given a guest is to come and nobody offers it yet, then its place is told": (
        seen(awaited=True, startable=False),
        [Stand()],
    ),
    "given a guest is to come and is offered, then a QEMU is started for it": (
        seen(awaited=True),
        [Start(), Wait(NOON)],
    ),
    "given a guest is waited for, then that is reported": (
        alive(awaited=True, standing=COMING),
        [Report()],
    ),
    "given a guest is waited for and will not come, then its QEMU goes at once": (
        alive(awaited=True, unneeded=True, standing=COMING),
        [CallOff(), Record(exit_record.unneeded(AT)), Quit(), Wait(NOON)],
    ),
    "given a pod is deleted that waits for a guest, then no button is pressed": (
        alive("stop", awaited=True, standing=COMING, deadline=LATER),
        [CallOff(), Record(exit_record.unneeded(AT)), Quit(), Wait(NOON)],
    ),
    "given a guest arrives shut down, then that is not its end until it has arrived": (
        alive(awaited=True, standing=OFF),
        [Report()],
    ),
    "given a guest has left, then what it left behind stays until its pod is deleted": (
        alive(left=True, noted=True, standing=GONE),
        [Report()],
    ),
    "given a guest was found to have left, then that is written down first": (
        alive(left=True, standing=GONE),
        [Leave(), Report()],
    ),
    "given a guest has left and its QEMU is gone, then its disks are known not to be ours": (
        dead("stop", left=True, ending=ENDED),
        [Leave(), Clean(), Report(), Remove(), Forget()],
    ),
    "given a guest has left and its pod is deleted, then it was not switched off": (
        alive("stop", left=True, noted=True, standing=GONE, deadline=LATER),
        [Record(exit_record.migrated(AT)), Quit(), Wait(NOON)],
    ),
    "given leftovers of a pod that is no more, then they go": (
        dead("gone", ending=ENDED),
        [Clean(), Report(), Forget()],
    ),
}


@pytest.mark.parametrize(("given_", "steps"), RULES.values(), ids=RULES)
def test_plan(given_: PodSnapshot, steps: list[Step]) -> None:
    assert plan(given_) == steps


moments = st.sampled_from([None, NOON - PRESS_AGAIN, NOON, LATER])
anything = st.builds(
    PodSnapshot,
    wanted=st.sampled_from(["run", "stop", "ended", "gone"]),
    now=st.just(NOON),
    startable=st.booleans(),
    intent=st.booleans(),
    spawned=st.booleans(),
    rebooted=st.booleans(),
    locked=st.booleans(),
    known=st.booleans(),
    standing=st.sampled_from([None, RUNS, OFF]),
    ending=st.sampled_from([None, ENDED]),
    deadline=moments,
    pressed=moments,
)


@given(anything)
def test_a_second_process_is_never_started(state: PodSnapshot) -> None:
    steps = plan(state)
    if state.locked or (state.spawned and state.intent) or state.ending:
        assert Start() not in steps
        assert Spawn() not in steps


@given(anything)
def test_a_process_is_ended_only_after_why_was_recorded(state: PodSnapshot) -> None:
    steps = plan(state)
    if Quit() in steps and state.ending is None:
        assert isinstance(steps[steps.index(Quit()) - 1], Record)


@given(anything)
def test_a_pod_is_removed_only_when_no_process_is_there(state: PodSnapshot) -> None:
    if state.locked:
        assert not {Remove(), Forget(), Clean()} & set(plan(state))


@given(anything)
def test_given_any_state_when_plans_are_followed_then_an_unwanted_guest_is_gone(
    state: PodSnapshot,
) -> None:
    if state.wanted == "run" or (state.locked and not state.known):
        return
    state = replace(state, now=LATER + timedelta(seconds=1), deadline=LATER)
    for _ in range(3):
        for step in plan(state):
            match step:
                case Record(what):
                    state = replace(state, ending=what)
                case Quit():
                    state = replace(state, locked=False, known=False, spawned=True, intent=True)
                case Forget():
                    return
    assert not state.locked
    assert state.wanted == "ended"
