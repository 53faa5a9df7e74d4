"""Which guests leave their nodes now: rows of the rules, and the limits whatever happens."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livevirt.kube.control.cache import Key
from livevirt.kube.objects.request import Object
from livevirt.vm.evacuation.plan import (
    ClearEvacuation,
    Guest,
    Migrate,
    ReportStuck,
    Snapshot,
    Step,
    drained,
    is_running,
    plan,
    read_guest,
)
from livevirt.vm.migration.queue import Limits, Waiting, admit
from livevirt.vm.migration.request import Unfinished

WEB = Key("team", "web")
GO: list[Step] = [Migrate(WEB, "a")]


def a_guest(name: str = "web", node: str = "a", **fields: Any) -> Guest:
    return Guest(Key("team", name), node, fields.pop("strategy", "LiveMigrate"), **fields)


def marked(name: str = "web", **fields: Any) -> Guest:
    return a_guest(name, evacuated_from="a", **fields)


def under_way(*guests: str, node: str = "a") -> dict[str, Any]:
    migrations = tuple(Unfinished(f"m-{name}", name, Key("team", name)) for name in guests)
    return {"migrations": migrations, "active": (node,) * len(migrations)}


def waiting(*guests: str) -> dict[str, Any]:
    return under_way(*guests) | {"active": ()}


MANY = tuple(marked(name) for name in "pqrs")

RULES: dict[str, tuple[Snapshot, list[Step]]] = {
    "a marked guest leaves": (Snapshot((marked(),)), GO),
    "one that nobody marked stays": (Snapshot((a_guest(),)), []),
    "a drained node is left": (Snapshot((a_guest(),), frozenset({"a"})), GO),
    "another drained node means nothing": (Snapshot((a_guest(),), frozenset({"b"})), []),
    "if possible": (Snapshot((marked(strategy="LiveMigrateIfPossible"),)), GO),
    "External is for others to move": (
        Snapshot((marked(strategy="External"),), frozenset({"a"})), [],
    ),
    "None is not moved": (Snapshot((a_guest(strategy="None"),), frozenset({"a"})), []),
    "not twice": (Snapshot((marked(),), **under_way("web")), []),
    "nor while the first one waits": (Snapshot((marked(),), **waiting("web")), []),
    "not while it moves": (Snapshot((marked(migrating=True),)), []),
    "one that cannot says so": (
        Snapshot((marked(not_migratable="RWO"),)), [ReportStuck(WEB, "RWO")],
    ),
    "one that need not says nothing": (
        Snapshot((marked(not_migratable="RWO", strategy="LiveMigrateIfPossible"),)), [],
    ),
    "the mark goes when it has left": (Snapshot((marked(node="b"),)), [ClearEvacuation(WEB, "a")]),
    "and it leaves again if it must": (
        Snapshot((marked(node="b"),), frozenset({"b"})),
        [ClearEvacuation(WEB, "a"), Migrate(WEB, "b")],
    ),
    "no more than may leave a node": (
        Snapshot(MANY, **under_way("x")), [Migrate(MANY[0].key, "a")],
    ),
    "others do not count for the node": (
        Snapshot(MANY, **under_way("x", node="b")), [Migrate(each.key, "a") for each in MANY[:2]],
    ),
    "no more than may migrate at all": (
        Snapshot(MANY, **under_way("x", node="b"), limits=Limits(2, 9)),
        [Migrate(MANY[0].key, "a")],
    ),
    "who only waits keeps nobody here": (
        Snapshot(MANY, **waiting("p", "q")), [Migrate(each.key, "a") for each in MANY[2:]],
    ),
    "nor does anybody elsewhere": (
        Snapshot(MANY[:1], **waiting("1", "2", "3", "4", "5")), [Migrate(MANY[0].key, "a")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("snapshot", "steps"), RULES.values(), ids=RULES)
def test_plan(snapshot: Snapshot, steps: list[Step]) -> None:
    assert plan(snapshot) == steps


@settings(deadline=None)
@given(
    guests=st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=8),
    limits=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    ends=st.lists(st.integers(0, 7), max_size=30),
)
def test_given_any_drain_when_migrations_end_in_any_order_then_all_leave_within_the_limits(
    guests: list[tuple[str, bool]], limits: tuple[int, int], ends: list[int]
) -> None:
    there = {str(i): a_guest(str(i), node) for i, (node, _) in enumerate(guests)}
    fixed = {str(i) for i, (_, movable) in enumerate(guests) if not movable}
    there |= {name: replace(there[name], not_migratable="RWO") for name in fixed}
    going: dict[str, str] = {}  # guest → the node it leaves

    def follow() -> None:
        left = frozenset({"a", "b"})
        moves = tuple(Unfinished(name, name, Key("team", name)) for name in going)
        snapshot = Snapshot(
            tuple(there.values()), left, moves, tuple(going.values()), Limits(*limits)
        )
        for step in plan(snapshot):
            if isinstance(step, Migrate):
                assert step.guest.name not in going
                going[step.guest.name] = step.node
        assert len(going) <= limits[0]
        assert all(count <= limits[1] for count in Counter(going.values()).values())

    follow()
    for which in [*ends, *range(8), *range(8), *range(8)]:
        if str(which) in going:
            del going[str(which)]
            there[str(which)] = replace(there[str(which)], node="c")
        follow()
    assert {name for name, guest in there.items() if guest.node != "c"} == fixed


@dataclass
class Try:
    """A migration: it waits until it may go, and fails or not."""

    guest: str
    created: int
    not_before: int  # its back-off
    seen: bool = False  # by who gives the turns
    goes: bool = False


class Drain:
    """A node that is left while some guests find no place, by the rules of turns there are."""

    def __init__(self, guests: str, doomed: set[str], limits: Limits) -> None:
        self.there, self.doomed, self.limits = {*guests}, doomed, limits
        self.tries: dict[str, Try] = {}
        self.failures: Counter[str] = Counter()
        self.failed_at: dict[str, int] = {}

    def tick(self, now: int) -> None:
        """Ask for migrations, let some go, and end those that have gone for a while."""
        moves = tuple(Unfinished(name, name, Key("team", name)) for name in self.tries)
        leaving = tuple("a" for each in self.tries.values() if each.goes or not each.seen)
        guests = tuple(a_guest(name) for name in self.there)
        for step in plan(Snapshot(guests, frozenset("a"), moves, leaving, self.limits)):
            assert isinstance(step, Migrate)
            name = step.guest.name
            back_off = 4 << self.failures[name] if name in self.failed_at else 0
            self.tries[name] = Try(name, now, self.failed_at.get(name, 0) + back_off)
        assert sum(each.goes or not each.seen for each in self.tries.values()) <= self.limits.node
        self._give_turns(now)
        for each in [each for each in self.tries.values() if each.goes and now > each.created + 2]:
            del self.tries[each.guest]
            if each.guest in self.doomed:
                self.failures[each.guest] = min(self.failures[each.guest] + 1, 4)
                self.failed_at[each.guest] = now
            else:
                self.there.remove(each.guest)

    def _give_turns(self, now: int) -> None:
        ready = [
            Waiting(each.guest, "a", 100, datetime.fromtimestamp(each.created, UTC))
            for each in self.tries.values()
            if not each.goes and now >= each.not_before
        ]
        going = ["a" for each in self.tries.values() if each.goes]
        for name in admit(ready, going, self.limits):
            self.tries[name].goes = True
        for each in self.tries.values():
            each.seen = True


@settings(deadline=None)
@given(doomed=st.sets(st.sampled_from("abcdef")), node=st.integers(1, 3))
def test_given_guests_that_fit_nowhere_when_a_node_is_drained_then_all_others_leave(
    doomed: set[str], node: int
) -> None:
    drain = Drain("abcdef", doomed, Limits(5, node))
    for now in range(300):
        drain.tick(now)
    assert drain.there == doomed


def test_a_guest_without_a_strategy_follows_the_clusters() -> None:
    meta = {"name": "web", "namespace": "team", "uid": "u"}
    vmi: Object = {"metadata": meta, "spec": {}, "status": {"phase": "Running", "nodeName": "a"}}
    assert read_guest(vmi, "LiveMigrate").strategy == "LiveMigrate"
    assert read_guest({**vmi, "spec": {"evictionStrategy": "None"}}, "External").strategy == "None"
    assert is_running(vmi)
    assert not is_running({**vmi, "metadata": {**meta, "deletionTimestamp": "t"}})


def test_only_the_taint_of_that_key_drains_a_node() -> None:
    def a_node(name: str, *taints: tuple[str, str]) -> Object:
        spec = {"taints": [{"key": key, "effect": effect} for key, effect in taints]}
        return {"metadata": {"name": name}, "spec": spec if taints else {}}

    nodes = [
        a_node("a", ("kubevirt.io/drain", "NoSchedule")),
        a_node("b", ("kubevirt.io/drain", "NoExecute"), ("other", "NoSchedule")),
        a_node("c"),
    ]
    assert drained(nodes, "kubevirt.io/drain") == {"a"}
    assert drained(nodes, "other") == {"b"}
