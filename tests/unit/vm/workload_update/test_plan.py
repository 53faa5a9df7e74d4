"""Who gets another pod now: rows of the rules, and laws that hold whatever happens."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livevirt.kube.control.cache import Key
from livevirt.vm.migration.queue import Limits
from livevirt.vm.migration.request import Unfinished
from livevirt.vm.workload_update.plan import (
    DEFERRED_TIMEOUT,
    RETRY_INTERVAL,
    Abort,
    Evict,
    Migrate,
    ReportStuck,
    Step,
    Wait,
    plan,
)
from livevirt.vm.workload_update.view import Guest, Need, Settings, WorkloadSnapshot

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
WEB = Key("team", "web")
OURS = "kubevirt.io/workloadUpdateMigration"
MINUTE = timedelta(minutes=1)
ASKED = Migrate(WEB, "user-triggered")
NO_ROOM = "no other node has room"


def a_guest(need: Need | None = Need.SIZE, name: str = "web", **fields: Any) -> Guest:
    return Guest(Key("team", name), name, need, pod=f"pod-{name}", **fields)


def a_migration(name: str = "m", **fields: Any) -> Unfinished:
    return Unfinished(name, f"uid-{name}", WEB, annotations={OURS: ""}, **fields)


def seen(*guests: Guest, methods: str = "LiveMigrate", **fields: Any) -> WorkloadSnapshot:
    given = Settings(frozenset(methods.split()), 2, MINUTE, fields.pop("limits", Limits()))
    leaving = ("a",) * fields.pop("under_way", 0)
    return WorkloadSnapshot(guests, given, leaving, NOON, fields.pop("last_batch", None))


FOREIGN = Unfinished("users", "u", WEB, annotations={})
FULL = a_guest(Need.FULL, waited=DEFERRED_TIMEOUT)
OLD = [a_guest(Need.OUTDATED, name) for name in "abc"]

RULES: dict[str, tuple[WorkloadSnapshot, list[Step]]] = {
    "a size migrates at once": (seen(a_guest()), [ASKED]),
    "also beyond the limits: turns are given elsewhere": (seen(a_guest(), under_way=9), [ASKED]),
    "not without the method": (seen(a_guest(), methods=""), []),
    "not if it may not": (seen(a_guest(hindrance="fixed")), []),
    "nobody is evicted for a size": (
        seen(a_guest(hindrance="fixed"), methods="LiveMigrate Evict"), [],
    ),
    "nor with that method alone": (seen(a_guest(), methods="Evict"), []),
    "a move migrates at once": (seen(a_guest(Need.MOVE)), [ASKED]),
    "not twice": (seen(a_guest(migrations=(a_migration(),))), []),
    "not beside a user's migration": (seen(a_guest(migrations=(FOREIGN,))), []),
    "not while it moves": (seen(a_guest(moving=True)), []),
    "not against its owner's will": (seen(a_guest(called_off=True)), []),
    "what changes in place is left alone": (seen(a_guest(None)), []),
    "a node too small is left at once": (seen(a_guest(Need.TOO_SMALL)), [ASKED]),
    "a full node gets a moment": (seen(a_guest(Need.FULL)), [Wait(DEFERRED_TIMEOUT)]),
    "but no more": (seen(FULL), [ASKED]),
    "without room elsewhere it stays and looks again": (
        seen(replace(FULL, hindrance=NO_ROOM)), [ReportStuck(WEB, NO_ROOM), Wait(RETRY_INTERVAL)],
    ),
    "nor is it evicted": (
        seen(replace(FULL, hindrance=NO_ROOM), methods="LiveMigrate Evict"),
        [ReportStuck(WEB, NO_ROOM), Wait(RETRY_INTERVAL)],
    ),
    "where nothing migrates it stays": (
        seen(replace(FULL, hindrance="no"), methods=""), [ReportStuck(WEB, "no")],
    ),
    "outdated guests migrate as many as may": (
        seen(*OLD, limits=Limits(3, 2), under_way=1),
        [Migrate(each.key, "system-critical") for each in OLD[:2]],
    ),
    "and as many as may leave their node": (
        seen(*(replace(each, node="a") for each in OLD), under_way=1),
        [Migrate(OLD[0].key, "system-critical")],
    ),
    "who only waits keeps no outdated guest here": (
        seen(replace(OLD[0], migrations=(a_migration(),)), *OLD[1:], limits=Limits(1, 1)),
        [Migrate(OLD[1].key, "system-critical")],
    ),
    "who asked for something comes first": (
        seen(*OLD, a_guest(), limits=Limits(2, 2)),
        [ASKED, Migrate(OLD[0].key, "system-critical")],
    ),
    "outdated guests that cannot migrate are evicted, a batch at a time": (
        seen(*OLD, methods="Evict"),
        [Evict(OLD[0].key, "pod-a"), Evict(OLD[1].key, "pod-b"), Wait(MINUTE)],
    ),
    "also if migration is allowed": (
        seen(replace(OLD[0], hindrance="fixed"), methods="LiveMigrate Evict"),
        [Evict(OLD[0].key, "pod-a"), Wait(MINUTE)],
    ),
    "a batch waits for its time": (
        seen(*OLD, methods="Evict", last_batch=NOON - timedelta(seconds=20)),
        [Wait(timedelta(seconds=40))],
    ),
    "a batch whose time has come": (
        seen(OLD[0], methods="Evict", last_batch=NOON - MINUTE),
        [Evict(OLD[0].key, "pod-a"), Wait(MINUTE)],
    ),
    "a pod that goes already is not evicted": (
        seen(replace(OLD[0], pod=""), methods="Evict"), [],
    ),
    "a migration nobody needs is called off": (
        seen(a_guest(None, changing=False, migrations=(a_migration(),))),
        [Abort(WEB, "m", "uid-m")],
    ),
    "also one its owner does not want": (
        seen(a_guest(called_off=True, migrations=(a_migration(),))), [Abort(WEB, "m", "uid-m")],
    ),
    "not one that has brought the guest over": (
        seen(a_guest(None, changing=False, arrived="uid-m", migrations=(a_migration(),))), [],
    ),
    "not one that is called off already": (
        seen(a_guest(None, changing=False, migrations=(a_migration(deleting=True),))), [],
    ),
    "not a user's": (seen(a_guest(None, changing=False, migrations=(FOREIGN,))), []),
    "not while it changes in place": (seen(a_guest(None, migrations=(a_migration(),))), []),
}  # fmt: skip


@pytest.mark.parametrize(("given_", "steps"), RULES.values(), ids=RULES)
def test_plan(given_: WorkloadSnapshot, steps: list[Step]) -> None:
    assert plan(given_) == steps


# ---------------------------------------------------------------- laws


@dataclass
class Cluster:
    """Guests whose migrations end when they are told to."""

    guests: dict[str, Guest]
    settings: Settings
    now: datetime = NOON
    last_batch: datetime | None = None
    evicted: list[tuple[datetime, str]] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)  # guests whose migrations do not go

    def follow(self) -> None:
        found = tuple(self.guests.values())
        leaving = tuple(g.node for g in found if g.migrations and g.key.name not in self.waiting)
        for step in plan(
            WorkloadSnapshot(found, self.settings, leaving, self.now, self.last_batch)
        ):
            match step:
                case Migrate(key):
                    guest = self.guests[key.name]
                    assert not guest.migrations
                    assert not guest.hindrance
                    made = Unfinished(f"of-{key.name}", key.name, key, annotations={OURS: ""})
                    self.guests[key.name] = replace(guest, migrations=(made,))
                case Evict(key):
                    assert self.guests[key.name].need is Need.OUTDATED
                    self.evicted.append((self.now, key.name))
                    self.last_batch = self.now
                    del self.guests[key.name]
                case Abort(key):
                    self.guests[key.name] = replace(self.guests[key.name], migrations=())

    def outdated_under_way(self) -> int:
        return sum(
            len(guest.migrations) for guest in self.guests.values() if guest.need is Need.OUTDATED
        )


@given(count=st.integers(1, 6), limit=st.integers(1, 2))
def test_given_migrations_that_never_get_further_then_every_outdated_guest_is_tried(
    count: int, limit: int
) -> None:
    guests = {str(i): a_guest(Need.OUTDATED, str(i), node="a") for i in range(count)}
    cluster = Cluster(guests, Settings(frozenset({"LiveMigrate"}), limits=Limits(5, limit)))
    for _ in range(count):
        cluster.follow()
        cluster.waiting = {each.key.name for each in cluster.guests.values() if each.migrations}
    assert cluster.waiting == {*guests}


@settings(deadline=None)
@given(
    needs=st.lists(
        st.tuples(st.sampled_from([*Need, None]), st.booleans(), st.booleans()), max_size=8
    ),
    methods=st.sets(st.sampled_from(["LiveMigrate", "Evict"])),
    limit=st.integers(1, 3),
    events=st.lists(st.tuples(st.sampled_from(["done", "revert", "time"]), st.integers(0, 7))),
)
def test_given_any_guests_and_events_then_limits_hold_and_nobody_ends_for_a_size(
    needs: list[tuple[Need | None, bool, bool]],
    methods: set[str],
    limit: int,
    events: list[tuple[str, int]],
) -> None:
    cluster = Cluster(
        {
            str(i): a_guest(
                need,
                str(i),
                node=str(i),
                changing=need is not None,
                hindrance="" if movable else "fixed",
                called_off=off,
                waited=DEFERRED_TIMEOUT,
            )
            for i, (need, movable, off) in enumerate(needs)
        },
        Settings(frozenset(methods), 2, MINUTE, Limits(limit, 2)),
    )
    for what, which in [("time", 0), *events, ("time", 0)]:
        guest = cluster.guests.get(str(which))
        if what == "time":
            cluster.now += timedelta(seconds=25)
        elif guest is not None:
            left = () if what == "done" else guest.migrations
            cluster.guests[str(which)] = replace(guest, need=None, changing=False, migrations=left)
        cluster.follow()
        assert cluster.outdated_under_way() <= limit
        assert all(each.changing for each in cluster.guests.values() if each.migrations)
    by_batch: dict[datetime, int] = {}
    for when, _ in cluster.evicted:
        by_batch[when] = by_batch.get(when, 0) + 1
    assert all(count <= 2 for count in by_batch.values())
    times = sorted(by_batch)
    assert all(b - a >= MINUTE for a, b in itertools.pairwise(times))
