from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from livevirt.kube.store import Exists, Key, Missing, Put, Stale, Store, StoreClosed, StoreFull

from .store_builders import a_key, create, delete, failing, saying, state_of, update


async def test_the_empty_store_has_a_revision_above_zero(store: Store) -> None:
    assert store.revision == 1
    assert store.list("configmaps").revision == 1


async def test_given_a_written_object_then_get_returns_the_bytes_encoded_for_its_revision(
    store: Store,
) -> None:
    (stored,) = await store.write(create("a", "hello"))
    assert store.get(a_key("a")) == stored
    assert json.loads(stored.value) == {"text": "hello", "revision": stored.revision}
    assert store.revision == stored.revision == 2


async def test_given_a_deleted_object_then_get_returns_none(store: Store) -> None:
    (stored,) = await store.write(create("a"))
    await store.write(delete(stored))
    assert store.get(a_key("a")) is None


async def test_given_an_object_when_created_again_then_it_exists(store: Store) -> None:
    await store.write(create("a"))
    with pytest.raises(Exists, match="configmaps/default/a already exists"):
        await store.write(create("a", "other"))


async def test_given_a_newer_revision_when_written_with_the_old_then_it_is_stale(
    store: Store,
) -> None:
    (first,) = await store.write(create("a"))
    (second,) = await store.write(update(first))
    for change in (update(first), delete(first)):
        with pytest.raises(Stale) as refused:
            await store.write(change)
        assert refused.value.current == second.revision
    assert store.get(a_key("a")) == second


async def test_given_no_object_when_updated_or_deleted_then_it_is_missing(store: Store) -> None:
    (gone,) = await store.write(create("a"))
    await store.write(delete(gone))
    for change in (update(gone), delete(gone)):
        with pytest.raises(Missing, match="does not exist"):
            await store.write(change)


async def test_the_changes_of_one_call_get_consecutive_revisions(store: Store) -> None:
    results = await store.write(create("a"), create("b"), create("c"))
    assert [stored.revision for stored in results] == [2, 3, 4]
    assert store.commits == 1


async def test_one_call_may_change_an_object_twice(store: Store) -> None:
    await store.write(create("a"), Put(a_key("a"), 2, saying("twice")))
    assert json.loads(state_of(store)[a_key("a")])["text"] == "twice"
    assert store.count("configmaps") == 1


async def test_given_one_change_that_cannot_be_then_none_of_its_call_is_made(store: Store) -> None:
    await store.write(create("b"))
    with pytest.raises(Exists):
        await store.write(create("a"), create("b"), create("c"))
    assert state_of(store).keys() == {a_key("b")}
    assert store.count("configmaps") == 1


async def test_given_calls_in_one_batch_when_one_fails_then_the_others_are_committed(
    store: Store,
) -> None:
    await store.write(create("there"))
    commits = store.commits
    results = await asyncio.gather(
        store.write(create("a")),
        store.write(create("x"), create("there")),
        store.write(create("there")),
        store.write(Put(a_key("y"), None, failing(ValueError("cannot be encoded")))),
        store.write(create("b")),
        return_exceptions=True,
    )
    assert store.commits == commits + 1
    assert [type(result) for result in results] == [list, Exists, Exists, ValueError, list]
    assert state_of(store).keys() == {a_key("there"), a_key("a"), a_key("b")}
    assert store.count("configmaps") == 3
    assert store.revision == 4  # the failed calls used no revision up


async def test_given_an_encode_that_returns_no_bytes_then_only_its_call_fails(store: Store) -> None:
    wrong = Put(a_key("x"), None, lambda _: "text")  # type: ignore[arg-type, return-value]
    results = await asyncio.gather(
        store.write(wrong), store.write(create("a")), return_exceptions=True
    )
    assert [type(result) for result in results] == [TypeError, list]
    assert state_of(store).keys() == {a_key("a")}


async def test_given_many_writers_then_commits_are_shared(store: Store) -> None:
    async def writer(number: int) -> None:
        for turn in range(10):
            await store.write(create(f"{number}-{turn}"))

    await asyncio.gather(*(writer(number) for number in range(16)))
    assert store.count("configmaps") == 160
    assert store.commits < 60


async def test_given_writers_racing_for_counters_then_no_increment_is_lost(store: Store) -> None:
    keys = [a_key(str(number)) for number in range(3)]
    await store.write(*(Put(key, None, lambda _: b"0") for key in keys))

    async def increment(key: Key) -> None:
        while True:
            found = store.get(key)
            assert found is not None
            count = int(found.value) + 1
            try:
                await store.write(Put(key, found.revision, lambda _, n=count: b"%d" % n))
                return
            except Stale:
                continue

    await asyncio.gather(*(increment(keys[turn % 3]) for turn in range(150)))
    assert set(state_of(store).values()) == {b"50"}


async def test_no_write_is_acknowledged_or_published_before_its_commit(store: Store) -> None:
    reached, released = threading.Event(), threading.Event()

    def hold(statement: str) -> None:
        if statement == "COMMIT":
            reached.set()
            released.wait(10)

    store._writer._database.set_trace_callback(hold)
    watch = store.watch("configmaps", since=store.revision)
    write = asyncio.create_task(store.write(create("a")))
    assert await asyncio.to_thread(reached.wait, 10)
    joining = asyncio.create_task(store.write(create("b")))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not write.done()
    assert store.get(a_key("a")) is None
    assert watch.progress == store.revision == 1
    released.set()
    await asyncio.gather(write, joining)
    assert state_of(store).keys() == {a_key("a"), a_key("b")}


async def test_given_a_cancelled_writer_then_the_others_and_later_ones_are_served(
    store: Store,
) -> None:
    tasks = [asyncio.create_task(store.write(create(str(number)))) for number in range(10)]
    await asyncio.sleep(0)  # submitted, not yet put together
    tasks[0].cancel()
    await asyncio.sleep(0)  # handed to the writer thread
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert isinstance(results[1], asyncio.CancelledError)
    assert all(isinstance(result, list) for result in results[2:])
    await store.write(create("later"))
    assert store.get(a_key("later"))


async def test_given_a_restart_then_everything_is_as_it_was(path: Path) -> None:
    store = Store.open(path)
    (a, _, c) = await store.write(create("a"), create("b"), create("c"))
    await store.write(delete(c))
    (a,) = await store.write(update(a))
    before = store.list("configmaps")
    await store.close()

    store = Store.open(path)
    assert store.list("configmaps") == before
    assert store.count("configmaps") == 2
    assert (await store.write(update(a)))[0].revision == before.revision + 1
    await store.close()


async def test_given_only_a_deletion_last_then_revisions_go_on_after_a_restart(path: Path) -> None:
    store = Store.open(path)
    (a,) = await store.write(create("a"))
    (gone,) = await store.write(delete(a))
    await store.close()
    store = Store.open(path)
    assert store.revision == gone.revision
    assert (await store.write(create("a")))[0].revision == gone.revision + 1
    await store.close()


async def test_given_a_full_disk_then_the_batch_fails_whole_and_space_cures_it(
    store: Store,
) -> None:
    (kept,) = await store.write(create("kept"))
    database = store._writer._database
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count = {pages + 2}")
    results = await asyncio.gather(
        *(store.write(create(str(number), "x" * 20_000)) for number in range(4)),
        store.write(update(kept)),
        return_exceptions=True,
    )
    assert {type(result) for result in results} == {StoreFull}
    assert "free some space" in str(results[0])
    assert store.list("configmaps").items == [kept]
    assert store.revision == kept.revision

    database.execute("PRAGMA max_page_count = 1000000")
    await store.write(create("1", "x" * 20_000))
    assert store.count("configmaps") == 2
    assert store.revision == kept.revision + 1


async def test_given_a_commit_that_fails_then_nothing_is_half_applied(store: Store) -> None:
    (kept,) = await store.write(create("kept"))
    # A foreign key checked at commit makes COMMIT itself fail, with the transaction still open.
    database = store._writer._database
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("CREATE TEMP TABLE parent (id INTEGER PRIMARY KEY)")
    database.execute("CREATE TEMP TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
    database.execute(
        "CREATE TEMP TRIGGER spoil AFTER INSERT ON main.log WHEN NEW.name = 'bad'"
        " BEGIN INSERT INTO child VALUES (1); END"
    )
    results = await asyncio.gather(
        store.write(create("good")), store.write(create("bad")), return_exceptions=True
    )
    assert all("cannot use" in str(result) for result in results)
    assert store.list("configmaps").items == [kept]
    (good,) = await store.write(create("good"))
    assert good.revision == kept.revision + 1


async def test_given_a_closed_store_then_writes_and_reads_say_so(path: Path) -> None:
    store = Store.open(path)
    last = asyncio.create_task(store.write(create("last")))
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    assert await last  # what was submitted before is finished
    with pytest.raises(StoreClosed):
        await store.write(create("late"))
    with pytest.raises(StoreClosed):
        store.get(a_key("last"))
