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


def admitted(waiting: Iterable[Waiting], going: Iterable[str], limits: Limits) -> frozenset[str]:
    """Return the uids of those that may begin beside the ones that go on.

    `going` names the node each of these leaves. Who has to wait for its node keeps nobody of
    another node waiting.
    """
    taken = Counter(going)
    room, found = limits.cluster - taken.total(), set()
    for each in sorted(waiting, key=lambda one: one.place):
        if room <= 0:
            break
        if taken[each.node] < limits.node:
            taken[each.node] += 1
            room -= 1
            found.add(each.uid)
    return frozenset(found)
