"""Fair turns for writers that get in each other's way.

A write is tried at once and fails if another writer was faster. Trying again at once would lose to
newcomers for as long as they keep coming, so a writer that failed waits in line, and so do those
that come while there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

_TRIES = 50  # in turn: only writers of another kind can still be faster

T = TypeVar("T")
Attempt = Callable[[], Awaitable[T | None]]


class _Line:
    """Who waits for one key, one behind the other."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.length = 0


class Turns:
    """One line for each key, as long as a writer waits in it."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}

    @property
    def lines(self) -> int:
        """The number of keys that are waited for."""
        return len(self._lines)

    async def write(self, key: Hashable, attempt: Attempt[T]) -> T | None:
        """Call `attempt` until it gives something; give up, with None, after very many times."""
        if key not in self._lines:
            done = await attempt()
            if done is not None:
                return done
        line = self._lines.setdefault(key, _Line())
        line.length += 1
        try:
            async with line.lock:
                for _ in range(_TRIES):
                    done = await attempt()
                    if done is not None:
                        return done
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[key]
        return None
