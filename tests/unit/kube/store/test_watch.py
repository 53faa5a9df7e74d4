from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from livevirt.kube.store import Compacted, Event, Overrun, Retention, Store, watch
from livevirt.kube.store.records import Event as PublishedEvent

from .store_builders import a_key, churn, collect, create, delete, replay, state_of, until, update


def brief(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.type, event.key.name) for event in events]


async def test_a_watch_gives_each_change_with_the_object_before_and_after(store: Store) -> None:
    watch = store.watch("configmaps", since=store.revision)
    (a,) = await store.write(create("a", "one"))
    (a,) = await store.write(update(a, "two"))
    await store.write(delete(a, "end"))
    events = await collect(watch, store.revision)
    assert brief(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert [event.object["text"] for event in events] == ["one", "two", "end"]
    assert [event.object["revision"] for event in events] == [e.revision for e in events]
    assert events[0].previous_object is None
    assert [event.previous_object["text"] for event in events[1:]] == ["one", "two"]
    assert events[0].object is events[0].object  # decoded once


@pytest.mark.parametrize("source", ["memory", "disk"])
async def test_history_is_filtered_like_live_events(path: Path, source: str) -> None:
    store = Store.open(path)
    kinds = [(ns, res) for ns in ("one", "two") for res in ("pods", "secrets")]
    await store.write(*(create(a_key("old", *kind)) for kind in kinds))
    if source == "disk":
        await store.close()
        store = Store.open(path)
    watches = {
        "all": store.watch(None, since=1),
        "pods": store.watch("pods", since=1),
        "pods in two": store.watch("pods", "two", since=1),
        "anything in two": store.watch(None, "two", since=1),
    }
    await store.write(*(create(a_key("live", *kind)) for kind in kinds))
    seen = {name: await collect(watch, store.revision) for name, watch in watches.items()}
    counts = {name: len(events) for name, events in seen.items()}
    assert counts == {"all": 8, "pods": 4, "pods in two": 2, "anything in two": 4}
    assert [event.revision for event in seen["all"]] == list(range(2, 10))
    await store.close()


async def test_given_a_long_history_when_writes_go_on_then_nothing_is_lost_or_doubled(
    path: Path,
) -> None:
    store = Store.open(path)
    await churn(store, 1200, "old")
    await store.close()
    store = Store.open(path)  # the history is on disk only
    await churn(store, 700, "ring")
    watch = store.watch("configmaps", since=1)
    events = await anext(watch)
    assert watch.progress == events[-1].revision
    await churn(store, 50, "live")
    events += await collect(watch, store.revision)
    assert [event.revision for event in events] == list(range(2, store.revision + 1))
    assert replay(events, {}) == state_of(store)
    await store.close()


async def test_an_acknowledged_write_is_not_repeated_to_a_watch_from_its_revision(
    store: Store,
) -> None:
    (a,) = await store.write(create("a"))
    watch = store.watch("configmaps", since=a.revision)
    await store.write(update(a))
    assert brief(await collect(watch, store.revision)) == [("MODIFIED", "a")]


async def test_a_watch_from_a_revision_not_yet_published_skips_up_to_it(store: Store) -> None:
    watch = store.watch("configmaps", since=3)
    await store.write(create("2"), create("3"), create("4"))
    assert brief(await collect(watch, 4)) == [("ADDED", "4")]


async def test_progress_moves_with_events_of_others(store: Store) -> None:
    watch = store.watch("pods", since=store.revision)
    await store.write(create("a"))
    assert watch.progress == store.revision
    await store.write(create(a_key("a", "default", "pods")))
    assert watch.progress == store.revision - 1
    await anext(watch)
    assert watch.progress == store.revision


async def test_given_a_cancelled_wait_then_no_event_is_lost(store: Store) -> None:
    watch = store.watch("configmaps", since=store.revision)
    waiting = asyncio.create_task(anext(watch))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    write = asyncio.create_task(store.write(create("a")))
    await until(lambda: watch.progress < store.revision)  # the event is queued
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await write
    assert brief(await anext(watch)) == [("ADDED", "a")]


async def test_given_a_slow_consumer_when_its_queue_is_full_then_it_is_cut(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "QUEUE", 20)
    slow = store.watch("configmaps", since=store.revision)
    quick = store.watch("configmaps", since=store.revision)
    other = store.watch("pods", since=store.revision)
    quick_events: list[Event] = []
    (stored,) = await store.write(create("a"))
    for _ in range(30):
        (stored,) = await store.write(update(stored))
        quick_events += await anext(quick)
    with pytest.raises(Overrun):
        await anext(slow)
    assert slow.progress == 1
    assert len(quick_events) == 31
    assert other.progress == store.revision
    # It takes up where it stopped.
    again = store.watch("configmaps", since=slow.progress)
    assert len(await collect(again, store.revision)) == 31


async def test_given_compacted_history_when_watched_then_the_oldest_kept_is_named(
    path: Path,
) -> None:
    store = Store.open(path, keep=Retention(revisions=10, age=0, maximum=50))
    await churn(store, 400)
    with pytest.raises(Compacted, match="list again") as gone:
        store.watch("configmaps", since=store.oldest - 1)
    assert gone.value.oldest == store.oldest
    watch = store.watch("configmaps", since=store.oldest)
    events = await collect(watch, store.revision)
    assert len(events) == store.revision - store.oldest >= 10
    assert all(event.previous for event in events)
    await store.close()


async def test_given_history_compacted_while_it_is_read_then_the_watch_says_so(path: Path) -> None:
    store = Store.open(path, keep=Retention(revisions=700, age=0, maximum=1000))
    await churn(store, 650)
    await store.close()
    store = Store.open(path, keep=Retention(revisions=10, age=0, maximum=50))
    watch = store.watch("configmaps", since=1)
    await churn(store, 300, "other")
    with pytest.raises(Compacted):
        await collect(watch, store.revision)
    await store.close()


async def test_given_a_closed_watch_or_store_then_the_iteration_ends(path: Path) -> None:
    store = Store.open(path)
    one, two = (store.watch("configmaps", since=1) for _ in range(2))
    waiting = asyncio.create_task(_drain(one)), asyncio.create_task(_drain(two))
    await asyncio.sleep(0)
    one.close()
    one.close()
    assert await waiting[0] == []
    await store.close()
    assert await waiting[1] == []
    assert await _drain(store.watch("configmaps", since=1)) == []


async def _drain(watch: watch.Watch) -> list[PublishedEvent]:
    return [event async for events in watch for event in events]
