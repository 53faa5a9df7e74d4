"""Which migrations may start, also when only changed entries are read."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.control.cache import Key
from livevirt.vm.migration.queue import (
    Active,
    Blocked,
    Entry,
    Limits,
    MigrationQueue,
    Waiting,
    admit,
)

from .migration_builders import NOON, later

FIVE, ONE_EACH = Limits(5, 2), Limits(5, 1)


def one(uid: str, node: str = "n1", priority: int = 0, second: int = 0) -> Waiting:
    return Waiting(uid, node, priority, later(seconds=second))


RULES: dict[str, tuple[list[Waiting], list[str], Limits, set[str]]] = {
    "given room, then all go": ([one("a"), one("b", "n2")], [], FIVE, {"a", "b"}),
    "given a busy node, then its guests wait": ([one("a")], ["n1", "n1"], FIVE, set()),
    "given a busy node, then others do not": (
        [one("a"), one("b", "n2")], ["n1", "n1"], FIVE, {"b"},
    ),
    "given a busy cluster, then all wait": ([one("a")], ["n2"] * 5, FIVE, set()),
    "given capacity for one, then who came first": (
        [one("b", second=2), one("a", second=1)], ["n2"] * 4, FIVE, {"a"},
    ),
    "given capacity for one, then the more urgent": (
        [one("a"), one("b", priority=50, second=9)], [], ONE_EACH, {"b"},
    ),
    "given a limit of none, then none": ([one("a")], [], Limits(0, 2), set()),
    "given lowered limits, then those that go on do so": ([], ["n1"] * 4, Limits(1, 1), set()),
}  # fmt: skip


@pytest.mark.parametrize(("waiting", "going", "limits", "first"), RULES.values(), ids=RULES)
def test_admit(waiting: list[Waiting], going: list[str], limits: Limits, first: set[str]) -> None:
    assert admit(waiting, going, limits) == first


NODES = st.sampled_from(["n1", "n2", "n3"])
QUEUES = st.lists(
    st.builds(
        one, st.uuids().map(str), NODES, st.sampled_from([0, 20, 50, 100]), st.integers(0, 9)
    ),
    unique_by=lambda each: each.uid,
    max_size=12,
)


@given(QUEUES, st.lists(NODES, max_size=6), st.integers(0, 6), st.integers(0, 4))
def test_given_any_queue_then_the_limits_hold_and_no_capacity_is_left_unused(
    waiting: list[Waiting], going: list[str], cluster: int, node: int
) -> None:
    chosen = admit(waiting, going, Limits(cluster, node))
    after = Counter(going) + Counter(each.node for each in waiting if each.uid in chosen)
    if chosen:
        assert after.total() <= cluster
        assert all(after[each.node] <= node for each in waiting if each.uid in chosen)
    for left in (each for each in waiting if each.uid not in chosen):
        assert after.total() >= cluster or after[left.node] >= node
        ahead = [each for each in waiting if each.uid in chosen and each.node == left.node]
        assert all(each.rank < left.rank for each in ahead)


def test_the_time_is_the_same_for_all() -> None:
    assert one("a").created == NOON


# ---------------------------------------------------------------- MigrationQueue

LIMITS = Limits(cluster=2, node=2)
A, B, C = (Key("default", name) for name in "abc")


def waits(key: Key, second: int = 0) -> Waiting:
    return Waiting(key.name, "n1", 0, later(seconds=second))


class Entries:
    """The entries of a queue; counts how often one is read."""

    def __init__(self, **entries: Entry) -> None:
        self.of = {Key("default", name): entry for name, entry in entries.items()}
        self.reads = 0
        self.queue = MigrationQueue(self.read)
        self.queue.invalidate(self.of)

    def read(self, key: Key) -> Entry | None:
        self.reads += 1
        return self.of.get(key)

    def admitted(self, limits: Limits = LIMITS, seconds: int = 0) -> set[Key]:
        return set(self.queue.admitted(limits, later(seconds=seconds)))


def test_an_entry_that_has_not_changed_is_not_read_again() -> None:
    entries = Entries(a=waits(A), b=waits(B, 1), c=waits(C, 2))
    for _ in range(9):
        assert entries.admitted() == {A, B}
    assert entries.reads == 3
    entries.of[A] = Active("n1")
    entries.queue.invalidate([A])
    assert entries.admitted() == {B}
    assert entries.reads == 4


def test_one_that_has_ended_makes_room() -> None:
    entries = Entries(a=Active("n1"), b=waits(B), c=waits(C, 1))
    assert entries.admitted() == {B}
    del entries.of[A]
    entries.queue.invalidate([A])
    assert entries.admitted() == {B, C}


def test_other_limits_count_at_once() -> None:
    entries = Entries(a=waits(A), b=waits(B, 1), c=waits(C, 2))
    assert entries.admitted(Limits(1, 1)) == {A}
    assert entries.admitted(Limits(3, 3)) == {A, B, C}


def test_a_blocked_entry_is_read_again_when_its_time_is_over() -> None:
    entries = Entries(a=Blocked(later(seconds=20)), b=Blocked())
    assert entries.admitted() == set()
    entries.of[A] = entries.of[B] = waits(A)
    assert entries.admitted(seconds=19) == set()
    assert entries.admitted(seconds=20) == {A}  # nothing announced the other


ENTRIES = st.one_of(
    st.none(),
    st.builds(Active, st.sampled_from(["n1", "n2"])),
    st.builds(lambda second: waits(A, second), st.integers(0, 9)),
    st.builds(lambda second: Blocked(later(seconds=second)), st.integers(0, 9)),
)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), ENTRIES), max_size=30))
def test_it_answers_as_if_it_read_all(changes: list[tuple[str, Entry | None]]) -> None:
    known = Entries()
    for name, entry in changes:
        key = Key("default", name)
        if isinstance(entry, Waiting):
            entry = Waiting(name, "n1", 0, entry.created)
        known.of.pop(key, None)
        if entry is not None:
            known.of[key] = entry
        known.queue.invalidate([key])
        fresh = MigrationQueue(known.read)
        fresh.invalidate(known.of)
        assert known.admitted() == fresh.admitted(LIMITS, NOON)
