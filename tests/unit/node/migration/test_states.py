"""The state machines: what each state does, and which state follows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from livevirt.node.migration import states
from livevirt.node.migration.facts import Migration, PodFacts
from livevirt.node.migration.handover import Departure
from livevirt.node.migration.states import (
    SourceFacts,
    SourceState,
    SourceStep,
    TargetState,
    TargetStep,
    resumes,
    source,
    target,
)
from livevirt.qemu.migration import COMPLETED, NEVER

F = TypeVar("F")


def moved(source_pod: str = "s", target_pod: str = "t", **facts: Any) -> Migration:
    return Migration("m", source_pod, target_pod, **facts)


DONE = moved(completed=True, ended=True)
CANCELLED = moved(abort=True)
NOTED = Departure(uid="m")
RESERVED = PodFacts(pod="t", node="n2", vmi_node="n1", reserved=True)
WAITS = replace(RESERVED, incoming="m", intended=True)
CAME = replace(WAITS, arrived=True)

# ---------------------------------------------------------------- target

TARGETS: dict[str, tuple[PodFacts, TargetState]] = {
    "reserved before an offer": (replace(RESERVED, migration=moved()), TargetState.RESERVED),
    "reserved before it is named": (replace(RESERVED, offered=True), TargetState.RESERVED),
    "offered": (replace(RESERVED, migration=moved(), offered=True), TargetState.OFFERED),
    "no QEMU for a guest that was cancelled": (
        replace(RESERVED, migration=CANCELLED, offered=True), TargetState.CANCELLED,
    ),
    "receiving, if QEMU was not asked": (
        replace(WAITS, migration=moved()), TargetState.RECEIVING,
    ),
    "receiving while QEMU is in that run state": (
        replace(WAITS, migration=moved(), run_state="inmigrate"), TargetState.RECEIVING,
    ),
    "received": (replace(WAITS, migration=moved(), run_state="paused"), TargetState.RECEIVED),
    "cancelled, even with the whole guest": (
        replace(WAITS, migration=CANCELLED, run_state="paused"), TargetState.CANCELLED,
    ),
    "cancelled when the instance names others": (
        replace(WAITS, migration=moved("x", "y")), TargetState.CANCELLED,
    ),
    "too late to cancel once it is noted": (
        replace(CAME, migration=CANCELLED), TargetState.ARRIVED,
    ),
    "home": (replace(CAME, migration=DONE, vmi_node="n2"), TargetState.HOME),
    "lost": (replace(WAITS, migration=moved(), exited=True), TargetState.LOST),
    "died with a guest that may have run": (
        replace(CAME, migration=moved(), exited=True), TargetState.DIED,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "expected"), TARGETS.values(), ids=TARGETS)
def test_target(facts: PodFacts, expected: TargetState) -> None:
    assert target(facts).state is expected


def test_a_dead_target_never_takes_back_that_the_guest_stayed() -> None:
    stayed = moved(failed=True, ended=True)
    assert target(replace(CAME, migration=stayed, exited=True)).steps == ()


# ---------------------------------------------------------------- source

SENDING = SourceFacts(
    migration=moved(started=True), departure=NOTED, offered=True, listening=True, transfer="active"
)
FAILED = moved(started=True, failed=True, ended=True)
MAY_STOP = moved(started=True, settings={"allowWorkloadDisruption": True})
SOURCES: dict[str, tuple[SourceFacts, SourceState, tuple[SourceStep, ...]]] = {
    "offers first": (
        SourceFacts(migration=moved()), SourceState.PREPARING, (SourceStep.OFFER,),
    ),
    "notes before it reports, and reports before it sends": (
        SourceFacts(migration=moved(), offered=True, listening=True),
        SourceState.READY,
        (SourceStep.WRITE_NOTE, SourceStep.REPORT_READY),
    ),
    "sends with a note": (
        SourceFacts(migration=moved(started=True), offered=True, listening=True),
        SourceState.STARTING,
        (SourceStep.WRITE_NOTE, SourceStep.SEND),
    ),
    "sends": (SENDING, SourceState.SENDING, ()),
    "sent": (
        replace(SENDING, transfer=COMPLETED, run_state="postmigrate"), SourceState.SENT, (),
    ),
    "a note and no transfer: it failed": (
        replace(SENDING, transfer=NEVER), SourceState.FAILED, (SourceStep.REPORT_FAILURE,),
    ),
    "what QEMU calls completed may be how the guest came here": (
        replace(SENDING, transfer=COMPLETED), SourceState.FAILED, (SourceStep.REPORT_FAILURE,),
    ),
    "too slow": (
        replace(SENDING, overdue="slow"), SourceState.SENDING, (SourceStep.REQUEST_ABORT,),
    ),
    "too slow, and may be stopped": (
        replace(SENDING, overdue="slow", migration=MAY_STOP),
        SourceState.SENDING,
        (SourceStep.STOP_GUEST,),
    ),
    "too slow, and does not run": (
        replace(SENDING, overdue="slow", migration=MAY_STOP, run_state="paused"),
        SourceState.SENDING,
        (SourceStep.REQUEST_ABORT,),
    ),
    "too slow, though it was stopped": (
        replace(
            SENDING,
            overdue="slow",
            migration=MAY_STOP,
            departure=Departure(uid="m", stopped=True),
        ),
        SourceState.SENDING,
        (SourceStep.REQUEST_ABORT,),
    ),
    "failed with the last byte on its way": (
        replace(SENDING, migration=FAILED, run_state="finish-migrate"),
        SourceState.COMPLETING,
        (),
    ),
    "failed": (
        replace(SENDING, migration=FAILED),
        SourceState.STAYING,
        (SourceStep.RESUME, SourceStep.REMOVE_NOTE, SourceStep.FINISH),
    ),
    "an earlier migration failed and nobody saw it": (
        SourceFacts(migration=moved(), departure=Departure(uid="earlier")),
        SourceState.STAYING,
        (SourceStep.RESUME, SourceStep.REMOVE_NOTE),
    ),
    "no target": (
        SourceFacts(migration=moved(), unprepared="late"),
        SourceState.FAILED,
        (SourceStep.REPORT_FAILURE,),
    ),
    "left": (
        replace(SENDING, migration=moved(started=True, ended=True, completed=True)),
        SourceState.LEFT,
        (SourceStep.FINISH,),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "state", "steps"), SOURCES.values(), ids=SOURCES)
def test_source(facts: SourceFacts, state: SourceState, steps: tuple[SourceStep, ...]) -> None:
    decision = source(facts)
    assert (decision.state, decision.steps) == (state, steps)


@pytest.mark.parametrize(
    ("departure", "run_state", "expected"),
    [
        (None, "postmigrate", False),
        (NOTED, "running", False),
        (NOTED, "postmigrate", True),
        (Departure(uid="m", paused=True), "postmigrate", False),
        (Departure(uid="m", stopped=True), "paused", True),
        (NOTED, "paused", False),  # by its owner
    ],
)
def test_a_guest_that_stays_runs_if_it_ran(
    departure: Departure | None, run_state: str, expected: bool
) -> None:
    assert resumes(departure, run_state) is expected


# ---------------------------------------------------------------- what follows what


def source_events(f: SourceFacts) -> Iterator[SourceFacts]:
    """Yield the facts that can follow, by one thing that happens or one step that is done."""
    now, steps = f.migration, source(f).steps
    if SourceStep.FINISH in steps:
        return  # the migration is over for this pod
    killed = replace(f, offered=False, listening=False, failure_reported=False, unprepared="")
    if killed != f:
        yield killed  # what the agent had in memory is lost
    noted = f.departure is not None and f.departure.uid == now.uid
    if SourceStep.OFFER in steps:
        yield replace(f, offered=True)
        yield replace(f, failure_reported=True)  # it cannot be described
    if f.offered and not f.listening:
        yield replace(f, listening=True)
    if SourceStep.REPORT_READY in steps:
        yield replace(f, migration=replace(now, started=True))
    if SourceStep.WRITE_NOTE in steps:
        yield replace(f, departure=Departure(uid=now.uid))  # and the agent is killed
    if SourceStep.SEND in steps:
        yield replace(f, departure=Departure(uid=now.uid), transfer="active")
        yield replace(f, departure=Departure(uid=now.uid), failure_reported=True)
    if SourceStep.STOP_GUEST in steps:
        yield replace(f, departure=Departure(uid=now.uid, stopped=True), run_state="paused")
    if SourceStep.REPORT_FAILURE in steps:
        yield replace(f, failure_reported=True)
    if f.failure_reported and not now.ended:
        yield replace(f, migration=replace(now, ended=True, failed=True))
    if SourceStep.REMOVE_NOTE in steps:
        yield replace(f, departure=None, run_state="running", transfer=NEVER)
    if not noted and not f.unprepared and not now.started:
        yield replace(f, unprepared="late")
    if f.transfer == "active" and f.run_state != "finish-migrate":
        yield replace(f, overdue="slow")
        yield replace(f, run_state="finish-migrate")
        yield replace(f, transfer="failed")
    if f.transfer == "active" and f.run_state == "finish-migrate":
        yield replace(f, transfer=COMPLETED)
        yield replace(f, transfer="failed", run_state="running")
    if f.transfer == COMPLETED and f.run_state == "finish-migrate":
        yield replace(f, run_state="postmigrate")
    if f.transfer == COMPLETED and not now.ended:
        yield replace(f, migration=replace(now, ended=True, completed=True))
    if not now.ended:  # cancelled, or the target died: the target or the controller says so
        yield replace(f, migration=replace(now, ended=True, failed=True))


def target_events(f: PodFacts) -> Iterator[PodFacts]:
    now, steps = f.migration, target(f).steps
    assert now is not None
    ended = TargetStep.QUIT_QEMU in steps or f.exited
    if now.wanted and not f.intended:
        yield replace(f, offered=not f.offered)  # published, or the agent is killed
    if now.wanted:
        yield replace(f, migration=replace(now, abort=True))
    if TargetStep.START_QEMU in steps:
        yield replace(f, intended=True, incoming=now.uid, run_state="inmigrate")
    if f.run_state == "inmigrate" and not ended:
        yield replace(f, run_state="paused")
    if TargetStep.WRITE_NOTE in steps:
        yield replace(f, arrived=True)
    if TargetStep.REPORT_ARRIVAL in steps:
        completed = replace(now, ended=True, completed=True)
        yield replace(f, vmi_node=f.node, migration=completed)
    if TargetStep.REPORT_FAILURE in steps and not now.ended:
        yield replace(f, migration=replace(now, ended=True, failed=True))
    if f.intended and not f.exited:
        yield replace(f, exited=True)  # it was quit, or it died


def explored(start: Iterable[F], follow: Callable[[F], Iterator[F]]) -> Iterator[tuple[F, F]]:
    """Yield every pair of facts that follow each other, from some start."""
    todo, known = list(start), set[str]()
    while todo:
        facts = todo.pop()
        if repr(facts) not in known:
            known.add(repr(facts))
            for after in follow(facts):
                yield facts, after
                todo.append(after)


SOURCE_STARTS = [
    SourceFacts(migration=moved(settings=settings), departure=departure, run_state=run_state)
    for settings, departure, run_state in itertools.product(
        ({}, {"allowWorkloadDisruption": True}),
        (None, Departure(uid="earlier")),
        ("running", "finish-migrate"),
    )
    if departure is not None or run_state == "running"
]
MACHINES: dict[str, tuple[Any, Any, Mapping[Any, Any]]] = {
    "source": (
        list(explored(SOURCE_STARTS, source_events)), source, states.SOURCE_NEXT,
    ),
    "target": (
        list(explored([replace(RESERVED, migration=moved())], target_events)),
        target,
        states.TARGET_NEXT,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pairs", "decide", "table"), MACHINES.values(), ids=MACHINES)
def test_the_table_of_what_follows_is_just_what_can_happen(
    pairs: list[tuple[Any, Any]], decide: Callable[[Any], Any], table: Mapping[Any, Any]
) -> None:
    found = {state: set[Any]() for state in table}
    for before, after in pairs:
        if decide(before).state is not decide(after).state:
            found[decide(before).state].add(decide(after).state)
    assert found == {state: set(following) for state, following in table.items()}


def test_a_guest_is_resumed_at_its_source_only_after_the_migration_failed() -> None:
    for facts, _ in MACHINES["source"][0]:
        if SourceStep.RESUME in source(facts).steps:
            assert facts.migration.failed or facts.stale
            assert facts.run_state != states.COMPLETING


def test_a_guest_runs_at_its_target_only_with_a_note() -> None:
    for facts, _ in MACHINES["target"][0]:
        steps = target(facts).steps
        if TargetStep.RESUME in steps:
            assert facts.arrived or steps.index(TargetStep.WRITE_NOTE) == 0
        if TargetStep.REPORT_FAILURE in steps or TargetStep.QUIT_QEMU in steps:
            assert not facts.arrived


def test_a_guest_is_never_resumed_at_both_sides() -> None:
    """The source follows `failed`, which the target writes only without a note."""
    for facts, after in MACHINES["target"][0]:
        if after.migration.failed and not facts.migration.failed:
            assert not after.arrived
            assert after.exited or not after.intended
