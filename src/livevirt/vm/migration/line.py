"""The line of migrations: each one's place, kept as things change and not read anew for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from livevirt.kube.control.key import Key
from livevirt.vm.migration.turn import Limits, Waiting, admitted

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Going:
    """A migration that has begun."""

    node: str  # the one its guest leaves


@dataclass(frozen=True, slots=True)
class Later:
    """A migration that cannot begin, until then or until something changes."""

    until: datetime = _NEVER


Place = Going | Waiting | Later


class Line:
    """All migrations that have not ended. Give `note` the keys of those that may have changed."""

    def __init__(self, place: Callable[[Key], Place | None]) -> None:
        self._place = place  # None: it has none any more
        self._places: dict[Key, Place] = {}
        self._stale: set[Key] = set()
        self._due = _NEVER  # when the next one may begin that could not
        self._limits = Limits()
        self._first: frozenset[Key] = frozenset()

    def note(self, keys: Iterable[Key]) -> None:
        """Look again at these before the next answer."""
        self._stale.update(keys)

    def first(self, limits: Limits, now: datetime) -> frozenset[Key]:
        """Return those that may begin now."""
        if now >= self._due:
            self.note(key for key, each in self._places.items() if _until(each) <= now)
        moved = self._look_again()
        if moved or limits != self._limits:
            self._limits, self._first = limits, self._admitted(limits)
        return self._first

    def _look_again(self) -> bool:
        """Read the places that may be others; return whether any is."""
        moved = False
        while self._stale:
            key = self._stale.pop()
            place = self._place(key)
            if place == self._places.get(key):
                continue
            moved = True
            if place is None:
                del self._places[key]
            else:
                self._places[key] = place
        if moved:
            self._due = min(map(_until, self._places.values()), default=_NEVER)
        return moved

    def _admitted(self, limits: Limits) -> frozenset[Key]:
        going = [each.node for each in self._places.values() if isinstance(each, Going)]
        waits = {
            each.uid: (key, each) for key, each in self._places.items() if isinstance(each, Waiting)
        }
        found = admitted((each for _, each in waits.values()), going, limits)
        return frozenset(waits[uid][0] for uid in found)


def _until(place: Place) -> datetime:
    return place.until if isinstance(place, Later) else _NEVER
