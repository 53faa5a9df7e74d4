"""Whose turn it is: which waiting migrations may go now, under the limits there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Limits:
    """How many migrations may go on at a time."""

    cluster: int = 5
    node: int = 2  # away from one node


@dataclass(frozen=True, slots=True)
class Waiting:
    """A migration that could begin."""

    uid: str
    node: str  # the one its guest leaves
    priority: int
    created: datetime

    @property
    def place(self) -> tuple[int, datetime, str]:
        """Its place in the queue: the more urgent first, then who came first."""
        return -self.priority, self.created, self.uid


class Room:
    """What the limits leave beside the migrations that go on."""

    def __init__(self, limits: Limits, going: Iterable[str]) -> None:
        """Count those that go on; `going` names the node each of them leaves."""
        self._limits, self._taken = limits, Counter(going)

    @property
    def none(self) -> bool:
        """Whether nothing may begin, wherever."""
        return self._taken.total() >= self._limits.cluster

    def take(self, node: str) -> bool:
        """Take a place for a migration away from a node; tell whether there was one."""
        if self.none or self._taken[node] >= self._limits.node:
            return False
        self._taken[node] += 1
        return True


def admitted(waiting: Iterable[Waiting], going: Iterable[str], limits: Limits) -> frozenset[str]:
    """Return the uids of those that may begin beside the ones that go on.

    `going` names the node each of these leaves. Who has to wait for its node keeps nobody of
    another node waiting.
    """
    room = Room(limits, going)
    queue = sorted(waiting, key=lambda one: one.place)
    return frozenset(each.uid for each in queue if room.take(each.node))
