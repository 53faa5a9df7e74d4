"""The work queue: fair, and never the same key twice at once.

- Adding a key that is waiting changes nothing; adding one that is being worked on has it worked
  on again afterwards.
- Keys are handed out in the order they became ready; with `rank`, those of the highest rank first.
- A key added for later becomes ready at the earliest of the moments asked for.
- Each failure of a key doubles its wait, until it is forgotten.
- After `shut_down` nothing can be added, and what was ready is still handed out.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, Protocol, TypeVar

from livevirt.errors import LivevirtError
from livevirt.kube.control import backoff
from livevirt.kube.control.clock import Clock, Timer

K = TypeVar("K", bound=Hashable)


class ShutDown(LivevirtError):
    """The queue was shut down and has nothing left to hand out."""


class Metrics(Protocol):
    """Observes the queue. Called in the middle of its work: count, and return."""

    def depth(self, keys: int) -> None:
        """So many keys are ready and not yet handed out."""

    def waited(self, seconds: float) -> None:
        """A key was handed out after being ready for so long."""

    def worked(self, seconds: float) -> None:
        """A key was worked on for so long."""

    def retried(self) -> None:
        """A key failed and will come again."""


class Queue(Generic[K]):
    """Hands keys to workers; see the module for what it promises."""

    def __init__(
        self,
        *,
        base: float = 0.005,
        cap: float = 1000.0,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        rank: Callable[[K], int] | None = None,
    ) -> None:
        self._base, self._cap = base, cap
        self._given_clock = clock
        self._metrics = metrics
        self._rank = rank  # asked when a key becomes ready
        self._ready: list[tuple[int, int, K]] = []  # a heap: rank, highest first, then order
        self._dirty: dict[K, float] = {}  # to be worked on → since when it could be
        self._working: dict[K, float] = {}  # being worked on → since when
        self._failures: dict[K, int] = {}
        self._due: dict[K, float] = {}  # to be added later → when
        self._heap: list[tuple[float, int, K]] = []  # the same, sorted; may hold stale entries
        self._order = count()
        self._alarm: tuple[float, Timer] | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._shut = False

    def __len__(self) -> int:
        """Return how many keys are ready and not yet handed out."""
        return len(self._ready)

    def add(self, key: K) -> None:
        """Have the key worked on as soon as its turn comes."""
        if self._shut or key in self._dirty:
            return
        self._dirty[key] = self._clock.time()
        if key not in self._working:
            self._make_ready(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Add the key once that time has passed; of several such requests the earliest wins."""
        if seconds <= 0:
            self.add(key)
            return
        if self._shut:
            return
        when = self._clock.time() + seconds
        if when < self._due.get(key, float("inf")):
            self._due[key] = when
            heapq.heappush(self._heap, (when, next(self._order), key))
            self._set_alarm()

    def retry(self, key: K) -> float:
        """Add the key after a wait that doubles with each failure; return the wait in seconds."""
        wait = self.fail(key)
        self.add_after(key, wait)
        return wait

    def fail(self, key: K) -> float:
        """Count a failure of the key; return the wait in seconds that it has earned."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        if self._metrics:
            self._metrics.retried()
        # The exponent is bounded too: a key may fail more often than a float can double.
        return backoff.delay(failures + 1, self._base, self._cap)

    def forget(self, key: K) -> None:
        """Let the key's next failure be its first."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return how often the key has failed since it was last forgotten."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """Wait for a key and take it; `done` must follow. Raises ShutDown at the end."""
        while not self._ready:
            if self._shut:
                raise ShutDown("the queue was shut down")
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()  # this wake-up is another worker's now
                elif waiter in self._waiters:
                    self._waiters.remove(waiter)
                raise
        return self.get_nowait()

    def get_nowait(self) -> K:
        """Take the key whose turn it is; raises IndexError if none is ready."""
        *_, key = heapq.heappop(self._ready)
        time = self._clock.time()
        since = self._dirty.pop(key)
        self._working[key] = time
        if self._metrics:
            self._metrics.waited(time - since)
            self._metrics.depth(len(self._ready))
        return key

    def done(self, key: K) -> None:
        """Mark the work on a taken key as ended, with or without success."""
        since = self._working.pop(key)
        if self._metrics:
            self._metrics.worked(self._clock.time() - since)
        if key in self._dirty:
            self._make_ready(key)

    def shut_down(self) -> None:
        """Take no more keys; workers get what is ready and then ShutDown."""
        self._shut = True
        self._due.clear()
        self._heap.clear()
        self._set_alarm()
        while self._waiters:
            self._wake_one()

    @property
    def _clock(self) -> Clock:
        if self._given_clock is None:
            self._given_clock = asyncio.get_running_loop()
        return self._given_clock

    def _make_ready(self, key: K) -> None:
        rank = 0 if self._rank is None else -self._rank(key)
        heapq.heappush(self._ready, (rank, next(self._order), key))
        if self._metrics:
            self._metrics.depth(len(self._ready))
        self._wake_one()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _set_alarm(self) -> None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # an earlier request replaced it
        when = self._heap[0][0] if self._heap else None
        if self._alarm is not None:
            if self._alarm[0] == when:
                return
            self._alarm[1].cancel()
            self._alarm = None
        if when is not None:
            self._alarm = (when, self._clock.call_at(when, self._ring))

    def _ring(self) -> None:
        assert self._alarm is not None
        # A loop may ring a clock's tick early; what rang is due.
        time = max(self._clock.time(), self._alarm[0])
        self._alarm = None
        while self._heap and self._heap[0][0] <= time:
            when, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == when:
                del self._due[key]
                self.add(key)
        self._set_alarm()
