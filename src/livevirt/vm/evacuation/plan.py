"""Which guests are moved off their nodes now: frozen data in, steps out."""

from __future__ import annotations

from dataclasses import dataclass

from livevirt.kube.control.key import Key
from livevirt.vm.evacuation.view import MOVED, Guest, Seen
from livevirt.vm.migration.turn import Room


@dataclass(frozen=True, slots=True)
class Migrate:
    """Ask for a migration away from that node."""

    guest: Key
    node: str


@dataclass(frozen=True, slots=True)
class Clear:
    """Take back the mark of an eviction: the guest has left that node."""

    guest: Key
    node: str


@dataclass(frozen=True, slots=True)
class Stuck:
    """Tell why a guest stays on a node that is drained."""

    guest: Key
    why: str


Step = Migrate | Clear | Stuck


def plan(seen: Seen) -> list[Step]:
    """List what to do for guests that must leave, as many at a time as may migrate."""
    room = Room(seen.limits, seen.leaving)
    moving = {each.vmi for each in seen.migrations}
    steps: list[Step] = []
    for guest in sorted(seen.guests, key=lambda each: each.key):
        if guest.marked and guest.marked != guest.node:
            steps.append(Clear(guest.key, guest.marked))
        if not _must_leave(guest, seen) or guest.key in moving or guest.moving:
            continue
        if guest.unmovable:
            if guest.strategy == "LiveMigrate":  # others may be evicted
                steps.append(Stuck(guest.key, guest.unmovable))
        elif room.take(guest.node):
            steps.append(Migrate(guest.key, guest.node))
    return steps


def _must_leave(guest: Guest, seen: Seen) -> bool:
    if not guest.node or guest.strategy not in MOVED:
        return False
    return guest.marked == guest.node or guest.node in seen.drained
