"""Waiting by a clock that is handed in."""

from __future__ import annotations

import asyncio

import pytest

from livevirt.kube.control.clock import ManualClock, before, sleep

from .memory_handler import settle


async def test_sleep_ends_when_the_clock_says_so() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(sleep(clock, 10))
    await settle()
    clock.advance(9)
    await settle()
    assert not sleeper.done()
    clock.advance(1)
    await sleeper


async def test_a_cancelled_sleep_leaves_no_timer() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(sleep(clock, 10))
    await settle()
    sleeper.cancel()
    await asyncio.wait({sleeper})
    assert clock.waiting == 0


async def test_the_event_loop_is_a_clock() -> None:
    await sleep(asyncio.get_running_loop(), 0.001)


async def test_work_that_ends_before_the_moment_gives_its_result() -> None:
    async def work() -> int:
        return 7

    clock = ManualClock()
    assert await before(clock, 10, work()) == 7
    assert clock.waiting == 0


async def test_work_that_raises_raises() -> None:
    async def work() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await before(ManualClock(), 10, work())


async def test_work_that_is_late_is_cancelled() -> None:
    clock, ended = ManualClock(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(before(clock, 10, work()))
    await settle()
    clock.advance(10)
    with pytest.raises(TimeoutError):
        await waiting
    assert ended.is_set()


async def test_when_the_caller_is_cancelled_then_the_work_is_too() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(before(ManualClock(), 10, work()))
    await settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()
