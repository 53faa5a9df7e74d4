"""Which guests get another pod now, and how: frozen data in, steps out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from livevirt.kube.control.key import Key
from livevirt.vm.migration.migratability import EVICT, LIVE_MIGRATE
from livevirt.vm.migration.request import SYSTEM_CRITICAL, USER_TRIGGERED
from livevirt.vm.migration.turn import Room
from livevirt.vm.migration.view import WORKLOAD_UPDATE
from livevirt.vm.workload_update.view import IN_PLACE_TOO, Guest, Need, Seen

#: How long a full node may take to find room; a guest that can stay is not moved.
PATIENCE = timedelta(seconds=2)
#: How often a guest without room anywhere looks for some.
AGAIN = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Migrate:
    """Ask for a migration."""

    guest: Key
    priority: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict the pod: the guest ends, and its VM may start it again."""

    guest: Key
    pod: str


@dataclass(frozen=True, slots=True)
class Abort:
    """Call off a migration that nobody needs any more."""

    guest: Key
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Stay:
    """Tell why a guest that has no room does not go where there is some."""

    guest: Key
    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after that time."""

    time: timedelta


Step = Migrate | Evict | Abort | Stay | Wait


def plan(seen: Seen) -> list[Step]:
    """List what to do about the guests: who asked for something comes before who is outdated.

    A change of size is asked for at once, for whose turn it is to migrate is decided elsewhere.
    Outdated guests are only as many as may migrate, so that they do not stand in anybody's way.
    """
    room = Room(seen.settings.limits, seen.leaving)
    steps: list[Step] = []
    evicted: list[Step] = []
    for guest in sorted(seen.guests, key=lambda each: (each.need is Need.OUTDATED, each.key)):
        if guest.called_off or not guest.changing:
            steps += _aborts(guest)
            continue
        if guest.need is None or guest.migrations or guest.moving:
            continue
        if guest.need is Need.FULL and guest.waited < PATIENCE:
            steps.append(Wait(PATIENCE - guest.waited))
        elif LIVE_MIGRATE in seen.settings.methods and not guest.hindrance:
            place = room.take(guest.node)
            if guest.need is not Need.OUTDATED:
                steps.append(Migrate(guest.key, USER_TRIGGERED))
            elif place:
                steps.append(Migrate(guest.key, SYSTEM_CRITICAL))
        elif guest.need in IN_PLACE_TOO:
            steps.append(Stay(guest.key, guest.hindrance))
            steps += [Wait(AGAIN)] if LIVE_MIGRATE in seen.settings.methods else []
        elif guest.need is Need.OUTDATED and EVICT in seen.settings.methods and guest.pod:
            # Only these: who waits for a size keeps running and loses nothing by it.
            evicted.append(Evict(guest.key, guest.pod))
    return [*steps, *_batch(seen, evicted)]


def _aborts(guest: Guest) -> Iterator[Step]:
    """Yield what calls off the migrations that were asked for here and have not brought it over."""
    for each in guest.migrations:
        if each.has(WORKLOAD_UPDATE) and not each.deleting and each.uid != guest.arrived:
            yield Abort(guest.key, each.name, each.uid)


def _batch(seen: Seen, evicted: list[Step]) -> list[Step]:
    """Return the evictions whose turn it is, and when the next ones have theirs.

    There is a next turn also after the last ones: an eviction may be refused.
    """
    interval, size = seen.settings.batch_interval, seen.settings.batch_size
    if not evicted or size <= 0:
        return []
    since = seen.now - seen.last_batch if seen.last_batch is not None else interval
    if since < interval:
        return [Wait(interval - since)]
    return [*evicted[:size], Wait(interval)]
