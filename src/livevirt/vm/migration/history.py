"""Earlier migrations of an instance: the back-off after failures, and how long they are kept."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from livevirt.vm.migration.snapshot import Migration

FIRST_BACK_OFF = timedelta(seconds=20)  # doubled by each further failure
KEPT = 5  # ended migrations of an instance
KEPT_AFTER_INSTANCE = timedelta(hours=1)
_NEVER = datetime.min.replace(tzinfo=UTC)


def back_off(migration: Migration, others: Iterable[Migration], now: datetime) -> timedelta:
    """Return how long a migration has to wait because the last ones of its instance failed."""
    if not migration.automatic:
        return timedelta(0)
    failures, last = 0, _NEVER
    for each in _newest_first(other for other in others if other.uid != migration.uid):
        if each.phase == "Succeeded":
            break
        failures, last = failures + 1, max(last, each.finished or _NEVER)
    if not failures:
        return timedelta(0)
    doubled: int = 2 ** min(failures - 1, 16)
    return max(last + FIRST_BACK_OFF * doubled - now, timedelta(0))


def expired(migrations: Iterable[Migration]) -> list[Migration]:
    """Return the ended migrations of an instance that are no longer kept."""
    return [each for each in _newest_first(migrations)[KEPT:] if not each.deleting]


def time_left(migration: Migration, now: datetime) -> timedelta:
    """Return how long an ended migration whose instance is gone is still kept."""
    return max((migration.finished or _NEVER) + KEPT_AFTER_INSTANCE - now, timedelta(0))


def _newest_first(migrations: Iterable[Migration]) -> list[Migration]:
    ended = [each for each in migrations if each.final]
    return sorted(
        ended, key=lambda one: (one.created, one.finished or _NEVER, one.uid), reverse=True
    )
