"""Time as something handed in: the event loop's own, or one that tests move by hand."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from datetime import datetime
from itertools import count
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Now = Callable[[], datetime]  # the wall clock, with a time zone


class Timer(Protocol):
    """A callback that is still to come."""

    def cancel(self) -> None:
        """See to it that it does not come."""


class Clock(Protocol):
    """Seconds that never go backwards, and callbacks at a moment. An event loop is one."""

    def time(self) -> float:
        """Return the present moment."""

    def call_at(self, when: float, callback: Callable[[], object], /) -> Timer:
        """Call back at that moment, or soon if it has passed."""


async def sleep(clock: Clock, seconds: float) -> None:
    """Return once that many seconds have passed on the clock."""
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    timer = clock.call_at(clock.time() + seconds, wake)
    try:
        await woken
    finally:
        timer.cancel()


async def before(clock: Clock, when: float, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns; cancel it and raise TimeoutError if the moment comes first."""
    task = asyncio.ensure_future(work)
    late = False

    def expire() -> None:
        nonlocal late
        late = not task.done() and task.cancel()

    timer = clock.call_at(when, expire)
    try:
        await asyncio.wait({task})
    finally:
        timer.cancel()
        if not task.done():  # the caller itself was cancelled
            task.cancel()
            await asyncio.wait({task})
    if late and task.cancelled():
        raise TimeoutError
    return task.result()


class ManualClock:
    """A clock that moves only when `advance` is called; for tests and simulations."""

    def __init__(self, start: float = 0.0) -> None:
        self._time = start
        self._timers: list[tuple[float, int, _ManualTimer]] = []
        self._order = count()

    def time(self) -> float:
        """Return the moment it was last moved to."""
        return self._time

    def call_at(self, when: float, callback: Callable[[], object], /) -> Timer:
        """Call back from within the `advance` that reaches the moment."""
        timer = _ManualTimer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Let time pass; callbacks run in the order of their moments."""
        end = self._time + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            self._time = max(self._time, when)
            if timer.callback is not None:
                timer.callback()
        self._time = end

    @property
    def waiting(self) -> int:
        """How many callbacks are still to come."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def next(self) -> float | None:
        """Return the moment of the next callback, if any is to come."""
        moments = [when for when, _, timer in self._timers if timer.callback is not None]
        return min(moments, default=None)


class _ManualTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None
