"""The queue of migrations: limits, order, back-off, and how long ended ones are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from livevirt.kube.control.cache import Key
from livevirt.vm.migration.snapshot import Migration

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many migrations may run in parallel."""

    cluster: int = 5
    node: int = 2  # away from one node


@dataclass(frozen=True, slots=True)
class Waiting:
    """A migration that could start now."""

    uid: str
    node: str  # the source node
    priority: int
    created: datetime

    @property
    def rank(self) -> tuple[int, datetime, str]:
        """The sort key in the queue: by priority, then by age."""
        return -self.priority, self.created, self.uid


@dataclass(frozen=True, slots=True)
class Active:
    """A migration that has started and counts towards the limits."""

    node: str  # the source node


@dataclass(frozen=True, slots=True)
class Blocked:
    """A migration that cannot start until then, or until something changes."""

    until: datetime = _NEVER


Entry = Active | Waiting | Blocked


class Capacity:
    """The number of migrations that may still start beside the active ones."""

    def __init__(self, limits: Limits, active: Iterable[str]) -> None:
        """Count the active migrations, given by their source nodes."""
        self._limits, self._active = limits, Counter(active)

    def take(self, node: str) -> bool:
        """Count one more migration away from a node, and return True, if the limits allow it."""
        full = self._active.total() >= self._limits.cluster
        if full or self._active[node] >= self._limits.node:
            return False
        self._active[node] += 1
        return True


def admit(waiting: Iterable[Waiting], active: Iterable[str], limits: Limits) -> frozenset[str]:
    """Return the uids of the waiting migrations that may start.

    `active` has the source node of each active migration. A migration that waits for its source
    node blocks none of another node.
    """
    capacity = Capacity(limits, active)
    queue = sorted(waiting, key=lambda each: each.rank)
    return frozenset(each.uid for each in queue if capacity.take(each.node))


class MigrationQueue:
    """All migrations that have not ended, and which of them may start.

    It reads only the entries that `invalidate` named, so a long queue costs little.
    """

    def __init__(self, read: Callable[[Key], Entry | None]) -> None:
        """Create a queue; `read` returns the entry of a migration, None once it has ended."""
        self._read = read
        self._entries: dict[Key, Entry] = {}
        self._invalid: set[Key] = set()
        self._next_expiry = _NEVER  # when the next blocked migration may start
        self._limits = Limits()
        self._admitted: frozenset[Key] = frozenset()

    def invalidate(self, keys: Iterable[Key]) -> None:
        """Read these entries again before the next answer."""
        self._invalid.update(keys)

    def admitted(self, limits: Limits, now: datetime) -> frozenset[Key]:
        """Return the migrations that may start now."""
        if now >= self._next_expiry:
            self.invalidate(key for key, each in self._entries.items() if _expiry(each) <= now)
        changed = self._refresh()
        if changed or limits != self._limits:
            self._limits, self._admitted = limits, self._admit(limits)
        return self._admitted

    def _refresh(self) -> bool:
        """Read the invalidated entries; return whether any has changed."""
        changed = False
        while self._invalid:
            key = self._invalid.pop()
            entry = self._read(key)
            if entry == self._entries.get(key):
                continue
            changed = True
            if entry is None:
                del self._entries[key]
            else:
                self._entries[key] = entry
        if changed:
            self._next_expiry = min(map(_expiry, self._entries.values()), default=_NEVER)
        return changed

    def _admit(self, limits: Limits) -> frozenset[Key]:
        active = [each.node for each in self._entries.values() if isinstance(each, Active)]
        waiting = {
            each.uid: (key, each)
            for key, each in self._entries.items()
            if isinstance(each, Waiting)
        }
        uids = admit((each for _, each in waiting.values()), active, limits)
        return frozenset(waiting[uid][0] for uid in uids)


def _expiry(entry: Entry) -> datetime:
    return entry.until if isinstance(entry, Blocked) else _NEVER


FIRST_BACK_OFF = timedelta(seconds=20)  # doubled by each further failure
KEPT = 5  # ended migrations of an instance
KEPT_AFTER_INSTANCE = timedelta(hours=1)
_NEVER_ENDED = datetime.min.replace(tzinfo=UTC)


def back_off(migration: Migration, others: Iterable[Migration], now: datetime) -> timedelta:
    """Return how long a migration has to wait because the last ones of its instance failed."""
    if not migration.automatic:
        return timedelta(0)
    failures, last = 0, _NEVER_ENDED
    for each in _newest_first(other for other in others if other.uid != migration.uid):
        if each.phase == "Succeeded":
            break
        failures, last = failures + 1, max(last, each.finished or _NEVER_ENDED)
    if not failures:
        return timedelta(0)
    doubled: int = 2 ** min(failures - 1, 16)
    return max(last + FIRST_BACK_OFF * doubled - now, timedelta(0))


def expired(migrations: Iterable[Migration]) -> list[Migration]:
    """Return the ended migrations of an instance that are no longer kept."""
    return [each for each in _newest_first(migrations)[KEPT:] if not each.deleting]


def time_left(migration: Migration, now: datetime) -> timedelta:
    """Return how long an ended migration whose instance is gone is still kept."""
    return max((migration.finished or _NEVER_ENDED) + KEPT_AFTER_INSTANCE - now, timedelta(0))


def _newest_first(migrations: Iterable[Migration]) -> list[Migration]:
    ended = [each for each in migrations if each.final]
    return sorted(
        ended, key=lambda one: (one.created, one.finished or _NEVER_ENDED, one.uid), reverse=True
    )
