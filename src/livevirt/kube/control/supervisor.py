"""Runs background tasks that must not end: one that fails is run again, after a growing delay.

A failure is logged, counted in the metrics and shown by `/readyz` until the task has run for a
while. What an attempt has subscribed to by `undo_on_restart` is given back before the next one, so
that a restarted controller does not leave its predecessor's handlers behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from livevirt.errors import LivevirtError
from livevirt.kube.control.metrics import Family, Sample

log = logging.getLogger(__name__)

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0  # seconds between two attempts
SETTLED = 10.0  # seconds after which an attempt counts as a success

RESTARTS = Family(
    "livevirt_background_restarts_total", "counter",
    "How often a background task has failed and was restarted.", ("task",),
)  # fmt: skip
FAILING = Family(
    "livevirt_background_failing", "gauge",
    "1 while a background task waits for its restart or has only just been restarted.", ("task",),
)  # fmt: skip
FAMILIES = (RESTARTS, FAILING)

T = TypeVar("T")
Work = Callable[[], Awaitable[None]]
Undo = Callable[[], None]

_undo: ContextVar[list[Undo] | None] = ContextVar("undo_on_restart", default=None)


def undo_on_restart(undo: Undo) -> None:
    """Call `undo` when the supervised task that runs now fails or ends."""
    pending = _undo.get()
    if pending is not None:
        pending.append(undo)


@dataclass(slots=True)
class _Task:
    failures: int = 0
    in_a_row: int = 0
    waiting: bool = False
    started: float = 0.0
    error: str = ""

    def is_failing(self, now: float) -> bool:
        return self.in_a_row > 0 and (self.waiting or now - self.started < SETTLED)


class Supervisor:
    """Keeps tasks running, by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}

    async def keep(self, name: str, work: Work) -> None:
        """Run `work` until it returns or we are cancelled, again each time it raises."""
        task = self._tasks.setdefault(name, _Task())
        clock = asyncio.get_running_loop().time
        while True:
            task.waiting, task.started = False, clock()
            failure = await self._outcome(name, work)
            if failure is None:
                task.in_a_row = 0
                return
            if clock() - task.started >= SETTLED:
                task.in_a_row = 0
            delay = min(FIRST_DELAY * 2.0 ** min(task.in_a_row, 16), LONGEST_DELAY)
            self._note(name, task, failure, delay)
            await asyncio.sleep(delay)

    async def obtain(self, name: str, find: Callable[[], Awaitable[T]]) -> T:
        """Return what `find` does, which is tried again until it succeeds."""
        found: list[T] = []

        async def work() -> None:
            found.append(await find())

        await self.keep(name, work)
        return found[0]

    async def _outcome(self, name: str, work: Work) -> BaseException | None:
        """Run `work` once, in a task of its own; return what it raised.

        So a cancellation that is raised here is ours, and not one of something that it waited for.
        """
        attempt = asyncio.create_task(self._attempt(name, work), name=name)
        try:
            await asyncio.wait({attempt})
        except asyncio.CancelledError:
            attempt.cancel()
            await asyncio.wait({attempt})
            if not attempt.cancelled():
                attempt.exception()  # retrieved, or asyncio would log it
            raise
        return asyncio.CancelledError() if attempt.cancelled() else attempt.exception()

    async def _attempt(self, name: str, work: Work) -> None:
        """Run `work` once; tests replace this to make tasks fail."""
        pending: list[Undo] = []
        token = _undo.set(pending)
        try:
            await work()
        finally:
            _undo.reset(token)
            for undo in reversed(pending):
                undo()

    def _note(self, name: str, task: _Task, failure: BaseException, delay: float) -> None:
        cause = _first(failure)
        task.failures += 1
        task.in_a_row += 1
        task.waiting = True
        task.error = str(cause) or repr(cause)
        # Our own errors say what is wrong; of others we want to know where they came from.
        trace = None if isinstance(cause, LivevirtError) else failure
        log.error(
            "background task failed",
            extra={"task": name, "error": task.error, "retry_in": delay},
            exc_info=trace,
        )

    def failing(self) -> dict[str, str]:
        """Return the error of each task that waits for its restart or has only just been."""
        now = asyncio.get_running_loop().time()
        return {name: task.error for name, task in self._tasks.items() if task.is_failing(now)}

    async def samples(self) -> list[Sample]:
        """Return how often each task was restarted, and which are failing."""
        failing, found = self.failing(), []
        for name, task in self._tasks.items():
            found.append(Sample(RESTARTS, (name,), task.failures))
            found.append(Sample(FAILING, (name,), int(name in failing)))
        return found


def _first(error: BaseException) -> BaseException:
    """Return the innermost error of nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
