"""How much history is kept: pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

RESOLUTION = 1.0  # seconds; changes closer together share one mark


@dataclass(frozen=True, slots=True)
class Retention:
    """Keep the last `revisions` changes and those of the last `age` seconds, at most `maximum`."""

    revisions: int = 10_000
    age: float = 300.0
    maximum: int = 200_000

    def __post_init__(self) -> None:
        # The newest change carries the revision counter, so it can never be dropped.
        if not 1 <= self.revisions <= self.maximum:
            raise ValueError("retention needs 1 <= revisions <= maximum")

    def limit(self, revision: int, aged: int) -> int:
        """Return the newest revision that may be compacted; all up to `aged` are past the age."""
        return min(revision - self.revisions, max(aged, revision - self.maximum))


class Ages:
    """Tells which revisions are past an age, at about a second's resolution.

    Times are monotonic and only in memory: after a restart everything found counts as new, so
    history is kept rather too long than too short, whatever happens to the wall clock.
    """

    def __init__(self, revision: int, now: float) -> None:
        self._marks = deque([(now, revision)])
        self._aged = 0

    def note(self, revision: int, now: float) -> None:
        """Take note that `revision` is the newest now."""
        marks = self._marks
        if marks and now - marks[-1][0] < RESOLUTION:
            marks[-1] = (marks[-1][0], revision)  # seems older than it is: `aged` allows for it
        else:
            marks.append((now, revision))

    def aged(self, age: float, now: float) -> int:
        """Return the newest revision older than `age` seconds."""
        marks = self._marks
        while marks and now - marks[0][0] > age + RESOLUTION:
            self._aged = marks.popleft()[1]
        return self._aged
