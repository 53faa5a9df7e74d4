from __future__ import annotations

from pathlib import Path

import pytest

from livevirt.kube.store import Retention, Store
from livevirt.kube.store.batch import Ages
from livevirt.kube.store.records import Event
from livevirt.kube.store.watch import OVERHEAD, Ring

from .store_builders import churn, collect, create, delete, replay, state_of, until

KEEP = Retention(revisions=10, age=300, maximum=50)
LIMITS = {
    "given few revisions, then none goes however old": (8, 8, -2),
    "given old ones, then the last ten stay": (30, 30, 20),
    "given young ones, then they stay beyond ten": (30, 5, 5),
    "given too many young ones, then the maximum holds": (100, 0, 50),
}


@pytest.mark.parametrize(("revision", "aged", "limit"), LIMITS.values(), ids=LIMITS)
def test_limit(revision: int, aged: int, limit: int) -> None:
    assert KEEP.limit(revision, aged) == limit


@pytest.mark.parametrize("revisions", [0, 60])
def test_a_retention_that_contradicts_itself_is_refused(revisions: int) -> None:
    with pytest.raises(ValueError, match="retention needs"):
        Retention(revisions=revisions, maximum=50)


def test_ages_are_never_overstated() -> None:
    ages = Ages(7, now=100.0)
    for step in range(40):
        ages.note(8 + step, now=100.5 + step / 4)
    assert ages.aged(300, now=400.0) == 0
    for now in (402.0, 405.5, 409.0):
        youngest = ages.aged(300, now)
        assert youngest >= 7
        written = 100.5 + (youngest - 8) / 4
        assert 300 <= now - written < 303
    assert ages.aged(300, now=900.0) == 47


def test_the_ring_holds_the_newest_events_within_its_budget() -> None:
    ring = Ring(floor=10, budget=5 * (OVERHEAD + 100))
    for revision in range(11, 31):
        event = Event(revision, "ADDED", None, b"1" + b" " * 99, None)  # type: ignore[arg-type]
        assert event.object == 1
        ring.extend([event])
    assert ring.floor == 25
    assert [event.revision for event in ring.after(25, 100)] == [26, 27, 28, 29, 30]
    assert [event.revision for event in ring.after(27, 2)] == [28, 29]
    assert ring.after(30, 100) == []


async def test_given_compaction_then_objects_and_kept_history_are_untouched(path: Path) -> None:
    store = Store.open(path, keep=Retention(revisions=20, age=0, maximum=50))
    await store.write(*(create(f"still-{number}") for number in range(10)))
    for turn in range(100):
        (fleeting,) = await store.write(create(f"fleeting-{turn}"))
        await store.write(delete(fleeting))
        await churn(store, 4, f"busy-{turn}")
    oldest, now = store.oldest, state_of(store)
    assert oldest > 200
    assert len(now) == 110
    before = state_of(store, revision=oldest)
    await store.close()

    store = Store.open(path)  # and it lasts
    assert store.oldest == oldest
    assert state_of(store) == now
    assert state_of(store, revision=oldest) == before
    watch = store.watch("configmaps", since=oldest)
    events = await collect(watch, store.revision)
    assert replay(events, before) == now
    rows = dict(store._reader._execute("SELECT revision, previous FROM log").fetchall())
    kept = {revision for revision in rows if revision > oldest}
    needed = {item.revision for item in store.list("configmaps").items}
    assert rows.keys() == kept | needed | {rows[revision] for revision in kept} - {None}
    assert len(kept) == store.revision - oldest
    await store.close()


async def test_given_an_idle_store_then_what_is_due_is_compacted_without_a_write(
    path: Path,
) -> None:
    store = Store.open(path)
    await churn(store, 100)
    await store.close()
    store = Store.open(path, keep=Retention(revisions=10, age=0, maximum=50))
    await store.write(create("wake"))
    assert store.oldest == 1
    await until(lambda: store.oldest >= store.revision - 50, pause=0.02)
    await store.close()


async def test_given_changes_younger_than_the_age_then_they_are_kept_beyond_the_number(
    path: Path,
) -> None:
    store = Store.open(path, keep=Retention(revisions=10, age=3600, maximum=100_000))
    await churn(store, 500)
    assert store.oldest == 1
    await store.close()
