from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.vm.migration.turn import Limits, Waiting, admitted

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
    "given one place, then who came first": (
        [one("b", second=2), one("a", second=1)], ["n2"] * 4, FIVE, {"a"},
    ),
    "given one place, then the more urgent": (
        [one("a"), one("b", priority=50, second=9)], [], ONE_EACH, {"b"},
    ),
    "given a limit of none, then none": ([one("a")], [], Limits(0, 2), set()),
    "given lowered limits, then those that go on do so": ([], ["n1"] * 4, Limits(1, 1), set()),
}  # fmt: skip


@pytest.mark.parametrize(("waiting", "going", "limits", "first"), RULES.values(), ids=RULES)
def test_turns(waiting: list[Waiting], going: list[str], limits: Limits, first: set[str]) -> None:
    assert admitted(waiting, going, limits) == first


NODES = st.sampled_from(["n1", "n2", "n3"])
QUEUES = st.lists(
    st.builds(
        one, st.uuids().map(str), NODES, st.sampled_from([0, 20, 50, 100]), st.integers(0, 9)
    ),
    unique_by=lambda each: each.uid,
    max_size=12,
)


@given(QUEUES, st.lists(NODES, max_size=6), st.integers(0, 6), st.integers(0, 4))
def test_given_any_queue_then_the_limits_hold_and_no_place_stays_empty(
    waiting: list[Waiting], going: list[str], cluster: int, node: int
) -> None:
    chosen = admitted(waiting, going, Limits(cluster, node))
    after = Counter(going) + Counter(each.node for each in waiting if each.uid in chosen)
    if chosen:
        assert after.total() <= cluster
        assert all(after[each.node] <= node for each in waiting if each.uid in chosen)
    for left in (each for each in waiting if each.uid not in chosen):
        assert after.total() >= cluster or after[left.node] >= node
        ahead = [each for each in waiting if each.uid in chosen and each.node == left.node]
        assert all(each.place < left.place for each in ahead)


def test_the_time_is_the_same_for_all() -> None:
    assert one("a").created == NOON
