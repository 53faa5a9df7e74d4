"""The work queue loses no key, works on none twice at once, and waits as long as it says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from livevirt.kube.control.clock import ManualClock
from livevirt.kube.control.queue import Queue, ShutDown

KEYS = st.sampled_from("abcd")
SECONDS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0])


def ready_keys(queue: Queue[str]) -> list[str]:
    return [key for *_, key in sorted(queue._ready)]


class QueueMachine(RuleBasedStateMachine):
    """Next to the queue runs a model: what is ready in which order, at work, wanted again, due."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.queue: Queue[str] = Queue(base=0.5, cap=4.0, clock=self.clock)
        self.ready: list[str] = []
        self.working: set[str] = set()
        self.again: list[str] = []
        self.due: dict[str, float] = {}
        self.failures: dict[str, int] = {}

    def wanted(self, key: str) -> None:
        if key in self.working:
            if key not in self.again:
                self.again.append(key)
        elif key not in self.ready:
            self.ready.append(key)

    def wanted_later(self, key: str, seconds: float) -> None:
        if seconds == 0:
            self.wanted(key)
        else:
            when = self.clock.time() + seconds
            self.due[key] = min(when, self.due.get(key, when))

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.wanted(key)

    @rule(key=KEYS, seconds=SECONDS)
    def add_after(self, key: str, seconds: float) -> None:
        self.queue.add_after(key, seconds)
        self.wanted_later(key, seconds)

    @rule(key=KEYS)
    def retry(self, key: str) -> None:
        failures = self.failures.get(key, 0)
        self.failures[key] = failures + 1
        wait = min(0.5 * 2**failures, 4.0)
        assert self.queue.retry(key) == wait
        self.wanted_later(key, wait)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.failures.pop(key, None)

    @precondition(lambda self: self.ready)
    @rule()
    def take(self) -> None:
        key = self.queue.get_nowait()
        assert key not in self.working
        assert key == self.ready.pop(0)
        self.working.add(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.queue.done(key)
        self.working.remove(key)
        if key in self.again:
            self.again.remove(key)
            self.ready.append(key)

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 5.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        over = [key for key, when in self.due.items() if when <= self.clock.time()]
        # Sorting is stable, but of equal moments the order asked for counts; compare sets there.
        for key in sorted(over, key=lambda key: self.due[key]):
            del self.due[key]
            if key not in self.ready:
                self.wanted(key)
        order = ready_keys(self.queue)
        assert sorted(order) == sorted(self.ready)
        self.ready = order

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        assert ready_keys(self.queue) == self.ready
        assert len(self.queue) == len(self.ready)
        assert self.clock.waiting == bool(self.due)

    def teardown(self) -> None:
        wanted = {*self.ready, *self.again, *self.due}
        seen = set()
        for key in list(self.working):
            self.queue.done(key)
        for _ in range(2):  # the longest wait is over after the first
            self.clock.advance(10)
            while len(self.queue):
                key = self.queue.get_nowait()
                seen.add(key)
                self.queue.done(key)
        assert seen == wanted
        assert not self.clock.waiting


TestQueue = QueueMachine.TestCase


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_failing_key_waits_twice_as_long_each_time_up_to_the_cap(clock: ManualClock) -> None:
    queue: Queue[str] = Queue(clock=clock)
    waits = [queue.retry("a") for _ in range(30)]
    assert waits[:4] == [0.005, 0.01, 0.02, 0.04]
    assert waits[-1] == 1000.0
    queue.forget("a")
    assert queue.retry("a") == 0.005


def test_given_thousands_of_failures_when_it_fails_again_then_the_wait_is_still_the_cap(
    clock: ManualClock,
) -> None:
    queue: Queue[str] = Queue(clock=clock)
    for _ in range(2000):
        queue.fail("a")
    assert queue.fail("a") == 1000.0


def test_given_ranks_then_the_highest_comes_first_and_equals_in_their_order(
    clock: ManualClock,
) -> None:
    ranks = {"low": -1, "high": 5}
    queue: Queue[str] = Queue(clock=clock, rank=lambda key: ranks.get(key, 0))
    queue.add_after("high", 1)
    for key in ("low", "a", "b"):
        queue.add(key)
    assert queue.get_nowait() == "a"
    clock.advance(1)
    assert [queue.get_nowait() for _ in range(3)] == ["high", "b", "low"]


def test_of_two_delayed_adds_the_earliest_wins_and_the_other_is_dropped(
    clock: ManualClock,
) -> None:
    queue: Queue[str] = Queue(clock=clock)
    queue.add_after("a", 10)
    queue.add_after("a", 2)
    queue.add_after("a", 5)
    clock.advance(2)
    assert queue.get_nowait() == "a"
    queue.done("a")
    clock.advance(100)
    assert len(queue) == 0


async def test_given_a_waiting_worker_when_a_key_is_added_then_it_gets_it() -> None:
    queue: Queue[str] = Queue()
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    async with asyncio.timeout(5):
        assert await worker == "a"


async def test_given_a_delayed_key_on_the_loops_clock_then_it_comes() -> None:
    queue: Queue[str] = Queue()
    queue.add_after("a", 0.001)
    async with asyncio.timeout(5):
        assert await queue.get() == "a"


async def test_given_a_woken_worker_when_it_is_cancelled_then_another_gets_the_key() -> None:
    queue: Queue[str] = Queue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")  # wakes the first, which has not run yet
    first.cancel()
    async with asyncio.timeout(5):
        assert await second == "a"
    assert first.cancelled()


async def test_given_a_waiting_worker_when_it_is_cancelled_then_no_later_key_is_lost() -> None:
    queue: Queue[str] = Queue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first})
    queue.add("a")
    async with asyncio.timeout(5):
        assert await second == "a"


async def test_when_shut_down_then_what_is_ready_is_handed_out_and_workers_end() -> None:
    queue: Queue[str] = Queue()
    queue.add("a")
    queue.add_after("late", 60)
    queue.shut_down()
    queue.add("b")
    queue.add_after("c", 1)
    assert await queue.get() == "a"
    with pytest.raises(ShutDown):
        await queue.get()


async def test_when_shut_down_then_every_waiting_worker_ends() -> None:
    queue: Queue[str] = Queue()
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.shut_down()
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert [type(result) for result in results] == [ShutDown] * 3


class Counts:
    def __init__(self) -> None:
        self.seen: list[tuple[str, float]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *values: self.seen.append((name, *values))


def test_metrics_are_told_of_depth_wait_work_and_retries(clock: ManualClock) -> None:
    counts = Counts()
    queue: Queue[str] = Queue(clock=clock, metrics=counts)
    queue.add("a")
    clock.advance(2)
    queue.get_nowait()
    clock.advance(3)
    queue.retry("a")
    queue.done("a")
    assert counts.seen == [
        ("depth", 1), ("waited", 2.0), ("depth", 0), ("retried",), ("worked", 3.0),
    ]  # fmt: skip
