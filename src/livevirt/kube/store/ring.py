"""The newest events in memory, so that most watches start without touching the disk."""

from __future__ import annotations

from collections import deque
from itertools import islice

from livevirt.kube.store.event import Event

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
        """Add the next events, and let go of the oldest that no longer fit."""
        self._events.extend(events)
        self._decoded.extend(events)
        self._size += sum(map(_size, events))
        while self._size > self._budget:
            oldest = self._events.popleft()
            self._size -= _size(oldest)
            self.floor = oldest.revision
        while len(self._decoded) > DECODED:
            self._decoded.popleft().forget()

    def after(self, revision: int, limit: int) -> list[Event]:
        """Return up to `limit` events that follow `revision`, which is not below `floor`."""
        start = revision - self.floor
        return list(islice(self._events, start, start + limit))


def _size(event: Event) -> int:
    return OVERHEAD + len(event.value) + len(event.previous or b"")
