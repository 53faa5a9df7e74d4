"""One holder works at a time, however slow the server and however wrong the wall clocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from livevirt.kube.client.local import LocalClient
from livevirt.kube.control.cache import Key
from livevirt.kube.control.clock import ManualClock
from livevirt.kube.control.lease import Election, Move, Observed, Timing, held, move, released
from livevirt.kube.objects.request import Object, User

from .memory_handler import UNREACHABLE, MemoryHandler, settle, until

NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
LEASE = ("leases.coordination.k8s.io", "kubevirt", "controllers")


def a_lease(holder: str | None, seconds: int = 15, **spec: Any) -> Object:
    return {"spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds} | spec}


MOVES: dict[str, tuple[Observed, float, Move]] = {
    "given no lease, then create": (Observed(None, 0), 0, "create"),
    "given a lease nobody holds, then take": (Observed(a_lease(""), 0), 0, "take"),
    "given a lease without a spec, then take": (Observed({}, 0), 0, "take"),
    "given our lease, then renew": (Observed(a_lease("me"), 0), 99, "renew"),
    "given another's that just changed, then wait": (Observed(a_lease("you"), 5), 19, "wait"),
    "given another's that is silent too long, then take": (
        Observed(a_lease("you"), 5),
        20,
        "take",
    ),
    "given another's with a long promise, then wait": (
        Observed(a_lease("you", seconds=60), 0),
        59,
        "wait",
    ),
}


@pytest.mark.parametrize(("observed", "time", "expected"), MOVES.values(), ids=MOVES)
def test_move(observed: Observed, time: float, expected: Move) -> None:
    assert move(observed, "me", time) == expected


def test_an_unchanged_lease_is_as_old_as_when_it_was_first_seen() -> None:
    seen = Observed(a_lease("you", renewTime="1"), 5)
    assert seen.again(a_lease("you", renewTime="1"), 9).since == 5
    assert seen.again(a_lease("you", renewTime="2"), 9).since == 9
    assert seen.again(None, 9).since == 9


def test_taking_counts_a_transition_and_renewing_does_not() -> None:
    first = held({}, "me", 15, NOON)
    assert first["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-06-01T12:00:00.000000Z",
        "renewTime": "2026-06-01T12:00:00.000000Z",
        "leaseTransitions": 0,
    }
    renewed = held(first, "me", 15, NOON + timedelta(seconds=2))["spec"]
    assert renewed["acquireTime"] == first["spec"]["acquireTime"]
    assert renewed["renewTime"] == "2026-06-01T12:00:02.000000Z"
    assert renewed["leaseTransitions"] == 0
    taken = held(released(first, NOON), "you", 15, NOON)["spec"]
    assert (taken["holderIdentity"], taken["leaseTransitions"]) == ("you", 1)


def test_times_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="duration > renew > retry"):
        Timing(duration=10, renew=10, retry=2)


class Candidate:
    """One election with its own wall clock, counting when its work runs."""

    def __init__(
        self, name: str, server: MemoryHandler, clock: ManualClock, skew: timedelta = timedelta(0)
    ) -> None:
        self.name = name
        self.works = False
        self.told: list[str] = []
        self.lost = 0
        self.finish = asyncio.Event()
        self.fail: Exception | None = None
        self.server = server
        self.election = Election(
            LocalClient(server, User(name)),
            Key("kubevirt", "controllers"),
            name,
            lambda: NOON + timedelta(seconds=clock.time()) + skew,
            clock=clock,
        )
        self.task = asyncio.create_task(
            self.election.run(
                self.work,
                started=lambda: self.told.append("started"),
                stopped=lambda: self.told.append("stopped"),
                lost=self.count_loss,
            )
        )

    def count_loss(self) -> None:
        assert self.works, "leadership is lost before the work ends"
        self.lost += 1

    async def work(self) -> None:
        self.works = True
        try:
            await self.finish.wait()
            if self.fail is not None:
                raise self.fail
        finally:
            self.works = False

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


@asynccontextmanager
async def candidates(*those: Candidate) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for one in those:
            await one.end()


async def passing(clock: ManualClock, seconds: float) -> None:
    """Let time pass in small steps, as it does."""
    for _ in range(int(seconds * 2)):
        clock.advance(0.5)
        await settle(20)


async def test_the_first_candidate_works_and_the_second_waits_for_as_long_as_it_renews() -> None:
    server, clock = MemoryHandler(), ManualClock()
    one = Candidate("one", server, clock)
    await until(lambda: one.works)
    two = Candidate("two", server, clock)
    async with candidates(one, two):
        await passing(clock, 120)
        assert (one.works, two.works) == (True, False)
        assert one.election.leading
        assert one.told == ["started"]


async def test_when_the_holder_ends_then_it_lets_go_and_the_other_need_not_wait_long() -> None:
    server, clock = MemoryHandler(), ManualClock()
    one = Candidate("one", server, clock)
    await until(lambda: one.works)
    two = Candidate("two", server, clock)
    async with candidates(two):
        await settle()
        await one.end()
        assert one.told == ["started", "stopped"]
        assert one.lost == 0
        assert server.objects[LEASE]["spec"]["holderIdentity"] == ""
        await passing(clock, 2)
        assert two.works


async def test_when_the_holder_vanishes_then_the_other_takes_over_after_the_duration() -> None:
    server, clock, dead = MemoryHandler(), ManualClock(), ManualClock()
    one = Candidate("one", server, dead)  # its clock stands still: it renews no more
    await until(lambda: one.works)
    two = Candidate("two", server, clock)
    async with candidates(two):
        await passing(clock, 14.5)
        assert not two.works
        await passing(clock, 2.5)
        assert two.works
        assert server.objects[LEASE]["spec"]["leaseTransitions"] == 1
        server.refuse = lambda request: UNREACHABLE if request.user.name == "one" else None
        await one.end()


@pytest.mark.parametrize("hours", [-5, 5])
async def test_a_wall_clock_that_is_hours_off_neither_steals_nor_loses_the_lease(
    hours: int,
) -> None:
    server, clock = MemoryHandler(), ManualClock()
    one = Candidate("one", server, clock)
    await until(lambda: one.works)
    two = Candidate("two", server, clock, skew=timedelta(hours=hours))
    async with candidates(one, two):
        await passing(clock, 60)
        assert (one.works, two.works) == (True, False)


async def test_given_a_lease_that_runs_out_then_it_is_taken_at_that_moment() -> None:
    server, clock, dead = MemoryHandler(), ManualClock(), ManualClock()
    one = Candidate("one", server, dead)  # its clock stands still: it renews no more
    await until(lambda: one.works)
    two = Candidate("two", server, clock)
    async with candidates(two):
        await settle()
        await passing(clock, 15)  # no multiple of the time between attempts
        assert two.works
        server.refuse = lambda request: UNREACHABLE if request.user.name == "one" else None
        await one.end()


async def test_given_a_suspended_holder_then_it_may_not_write_when_it_continues() -> None:
    server, clock = MemoryHandler(), ManualClock()
    one = Candidate("one", server, clock)
    assert not one.election.may_write
    await until(lambda: one.works)
    async with candidates(one):
        await passing(clock, 30)
        assert one.election.may_write
        server.hold = asyncio.Event()  # nothing of it runs before its clock has moved on
        clock.advance(10)
        assert one.works
        assert not one.election.may_write
        server.hold.set()
        await settle()


async def test_given_the_server_is_away_for_a_moment_then_the_holder_works_on() -> None:
    server, clock = MemoryHandler(), ManualClock()
    one = Candidate("one", server, clock)
    await until(lambda: one.works)
    async with candidates(one):
        server.refuse = lambda request: UNREACHABLE
        await passing(clock, 7)
        server.refuse = lambda request: None
        await passing(clock, 30)
        assert one.works
        assert one.told == ["started"]


async def test_given_no_renewal_then_the_work_is_cancelled_before_another_may_take_over() -> None:
    server, clock = MemoryHandler(), ManualClock()
    one = Candidate("one", server, clock)
    await until(lambda: one.works)
    two = Candidate("two", server, clock)
    async with candidates(one, two):
        await settle()
        server.refuse = lambda request: UNREACHABLE if request.user.name == "one" else None
        both = False
        for _ in range(60):
            await passing(clock, 0.5)
            both = both or (one.works and two.works)
        assert not both
        assert (one.works, two.works) == (False, True)
        assert one.told == ["started", "stopped"]
        assert one.lost == 1


async def test_given_a_server_that_hangs_then_the_holder_still_stops_in_time() -> None:
    server, clock = MemoryHandler(), ManualClock()
    one = Candidate("one", server, clock)
    await until(lambda: one.works)
    async with candidates(one):
        server.hold = asyncio.Event()
        await passing(clock, 10)
        worked = one.works
        server.hold.set()
        assert not worked


async def test_given_somebody_took_the_lease_then_the_work_stops_at_the_next_look() -> None:
    server, clock = MemoryHandler(), ManualClock()
    one = Candidate("one", server, clock)
    await until(lambda: one.works)
    async with candidates(one):
        server.put(*LEASE, spec=a_lease("you", renewTime="now")["spec"])
        await passing(clock, 2)
        assert not one.works
        assert server.objects[LEASE]["spec"]["holderIdentity"] == "you"  # not released by us


async def test_a_loser_stands_again_and_works_when_it_can() -> None:
    server, clock = MemoryHandler(), ManualClock()
    one = Candidate("one", server, clock)
    await until(lambda: one.works)
    async with candidates(one):
        server.refuse = lambda request: UNREACHABLE
        await passing(clock, 12)
        assert not one.works
        server.refuse = lambda request: None
        await passing(clock, 20)
        assert one.works
        assert one.told == ["started", "stopped", "started"]


async def test_when_the_work_ends_by_itself_then_run_returns_and_the_lease_is_free() -> None:
    server, clock = MemoryHandler(), ManualClock()
    one = Candidate("one", server, clock)
    await until(lambda: one.works)
    one.finish.set()
    async with asyncio.timeout(5):
        await one.task
    assert server.objects[LEASE]["spec"]["holderIdentity"] == ""
    assert clock.waiting == 0


async def test_when_the_work_fails_then_run_fails_with_it() -> None:
    server, clock = MemoryHandler(), ManualClock()
    one = Candidate("one", server, clock)
    one.fail = RuntimeError("broken")
    one.finish.set()
    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match="broken"):
            await one.task
    assert server.objects[LEASE]["spec"]["holderIdentity"] == ""


async def test_of_many_candidates_at_once_exactly_one_works() -> None:
    server, clock = MemoryHandler(), ManualClock()
    those = [Candidate(f"number-{n}", server, clock) for n in range(5)]
    async with candidates(*those):
        await passing(clock, 30)
        assert sum(one.works for one in those) == 1
