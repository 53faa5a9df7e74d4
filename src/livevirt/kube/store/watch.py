"""Watching changes: history first, then live, with no gap and nothing twice.

The newest events are kept in memory, so most watches start without touching the disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice

from livevirt.kube.store.errors import Overrun
from livevirt.kube.store.reader import Mirror
from livevirt.kube.store.records import Event

# ---------------------------------------------------------------- the newest events

BYTES = 8 << 20
OVERHEAD = 400  # bytes of an event beyond its values
DECODED = 128  # so many events may keep their decoded objects


class Ring:
    """A gapless run of events up to the newest, bounded in bytes; covers those after `floor`."""

    def __init__(self, floor: int, budget: int = BYTES) -> None:
        self.floor = floor
        self._budget = budget
        self._size = 0
        self._events: deque[Event] = deque()
        self._decoded: deque[Event] = deque()

    def extend(self, events: list[Event]) -> None:
        """Add the next events, and drop the oldest that no longer fit."""
        self._events.extend(events)
        self._decoded.extend(events)
        self._size += sum(map(_size, events))
        while self._size > self._budget:
            oldest = self._events.popleft()
            self._size -= _size(oldest)
            self.floor = oldest.revision
        decoded = self._decoded
        while len(decoded) > DECODED or (decoded and decoded[0].revision <= self.floor):
            decoded.popleft().forget()

    def after(self, revision: int, limit: int) -> list[Event]:
        """Return up to `limit` events that follow `revision`, which is not below `floor`."""
        start = revision - self.floor
        return list(islice(self._events, start, start + limit))


def _size(event: Event) -> int:
    return OVERHEAD + len(event.value) + len(event.previous or b"")


# ---------------------------------------------------------------- watches

QUEUE = 10_000  # events a watcher may fall behind,
QUEUE_BYTES = 16 << 20  # and bytes
CHUNK = 500  # events, or revisions in memory, looked at in one go


ReadEvents = Callable[[str | None, str | None, int, int, int], list[Event]]
"""Resource, namespace, since, until, limit: `Reader.events`."""


class Watch:
    """Iterates over batches of matching events: non-empty lists in the order of revisions.

    The iteration ends when the watch or the store is closed. It raises Compacted if the history it
    needs is gone, and Overrun if the consumer fell too far behind. A cancelled step loses nothing.
    """

    __slots__ = (
        "_hub",
        "_overrun",
        "_position",
        "_queue",
        "_queued",
        "_until",
        "_waiter",
        "closed",
        "namespace",
        "resource",
        "since",
    )

    def __init__(self, hub: Hub, resource: str | None, namespace: str | None, since: int) -> None:
        self.resource = resource
        self.namespace = namespace
        self.since = since
        self.closed = False
        self._hub = hub
        self._position = since  # history up to here has been handed out
        self._until = hub.revision  # history ends here, the queue goes on
        self._queue: list[Event] = []
        self._queued = 0  # bytes
        self._overrun = False
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> list[Event]:
        while True:
            if self._overrun:
                raise Overrun(
                    f"the watcher fell more than {QUEUE} events or {QUEUE_BYTES >> 20} MiB behind;"
                    " watch again from the last revision seen"
                )
            if self.closed:
                raise StopAsyncIteration
            if self._position < self._until:
                events, self._position = self._hub.history(self, self._position, self._until)
                if events:
                    return events
                await asyncio.sleep(0)  # others' turn; there may be much to skip
            elif self._queue:
                events, self._queue, self._queued = self._queue, [], 0
                return events
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None

    @property
    def progress(self) -> int:
        """The newest revision up to which every matching event has been handed out."""
        if self._position < self._until:
            return self._position
        if self._queue:
            return self._queue[0].revision - 1
        return max(self._hub.revision, self.since)

    def close(self) -> None:
        """End the iteration; may be called at any time and again."""
        self._hub.remove(self)
        self.closed = True
        self._wake()

    def matches(self, event: Event) -> bool:
        """Return whether the event is of the resource and namespace watched."""
        return (self.resource is None or event.key.resource == self.resource) and (
            self.namespace is None or event.key.namespace == self.namespace
        )

    def offer(self, event: Event) -> None:
        """Queue a live event if it is wanted; cut the watch if the queue is too long."""
        namespace = self.namespace
        if event.revision <= self.since or (
            namespace is not None and event.key.namespace != namespace
        ):
            return
        self._queue.append(event)
        self._queued += len(event.value)
        if len(self._queue) > QUEUE or self._queued > QUEUE_BYTES:
            self._overrun = True
            del self._queue[1:]  # the first still holds the progress
            self._hub.remove(self)
        if self._waiter is not None:
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Hub:
    """Hands committed events to the watches, in the loop's thread."""

    def __init__(self, revision: int, read: ReadEvents) -> None:
        self.revision = revision  # published; everything newer comes through `publish`
        self._read = read
        self._ring = Ring(revision)
        self._watches: dict[str | None, list[Watch]] = {}  # by resource; None watches all
        self._mirrors: dict[str, Mirror] = {}

    def publish(self, events: list[Event]) -> None:
        """Give the next events to all who watch them."""
        self.revision = events[-1].revision
        self._ring.extend(events)
        if self._mirrors:
            for event in events:
                if mirror := self._mirrors.get(event.key.resource):
                    mirror.offer(event)
        watches = self._watches
        if not watches:
            return
        everything = watches.get(None, ())
        for event in events:
            # Copies: a watch that overruns leaves the list.
            for watch in (*watches.get(event.key.resource, ()), *everything):
                watch.offer(event)

    def mirror(self, resource: str, mirror: Mirror) -> None:
        """Keep a mirror of a resource up to date, before any watch hears of the change."""
        self._mirrors[resource] = mirror

    def add(self, watch: Watch) -> None:
        self._watches.setdefault(watch.resource, []).append(watch)

    def remove(self, watch: Watch) -> None:
        """Send the watch no more events; does nothing the second time."""
        same = self._watches.get(watch.resource, [])
        if watch in same:
            same.remove(watch)
            if not same:
                del self._watches[watch.resource]

    def close(self) -> None:
        """End all watches."""
        for watches in list(self._watches.values()):
            for watch in list(watches):
                watch.close()

    def history(self, watch: Watch, position: int, until: int) -> tuple[list[Event], int]:
        """Return some of the watch's events after `position`, and how far they reach."""
        if position >= self._ring.floor:
            found = self._ring.after(position, CHUNK)
            reached = min(position + CHUNK, until)
            return [e for e in found if e.revision <= until and watch.matches(e)], reached
        found = self._read(watch.resource, watch.namespace, position, until, CHUNK)
        # Fewer than asked for: there are no more up to `until`.
        return found, found[-1].revision if len(found) == CHUNK else until
