"""How large the database gets: history is bounded in bytes, and free pages are given back."""

from __future__ import annotations

from pathlib import Path

import pytest

from livevirt.kube.store import Overrun, Put, Retention, Store, StoreCorrupt
from livevirt.kube.store import database as store_database
from livevirt.kube.store import store as store_module
from livevirt.kube.store import writer as store_writer
from livevirt.kube.store.batch import Sizes
from livevirt.kube.store.records import Event
from livevirt.kube.store.watch import Ring

from .store_builders import a_key, create, delete, until

KIB = 1024


def size_of(path: Path) -> int:
    return path.stat().st_size


def event(revision: int, before: int) -> Event:
    return Event(revision, "MODIFIED", a_key("x"), b"", bytes(before))


def test_given_history_beyond_the_budget_then_the_oldest_of_it_goes() -> None:
    sizes = Sizes(10, 1000 * KIB)
    for revision in range(11, 21):
        sizes.note([event(revision, 500 * KIB)])
    assert sizes.total == 6000 * KIB
    assert sizes.beyond(6000 * KIB, compacted=1) == 0
    assert sizes.beyond(5500 * KIB, compacted=1) == 10
    assert sizes.beyond(4900 * KIB, compacted=1) == 11
    assert sizes.beyond(4900 * KIB, compacted=11) == 0  # what is gone does not count
    assert sizes.total == 4500 * KIB


async def write_large(store: Store, times: int, size: int, name: str = "large") -> None:
    """Change one object many times; each value is large."""
    stored = store.get(a_key(name))
    expected = stored.revision if stored else None
    for _ in range(times):
        (written,) = await store.write(Put(a_key(name), expected, lambda _: b"x" * size))
        expected = written.revision


async def test_given_large_values_then_history_is_bounded_in_bytes(path: Path) -> None:
    store = Store.open(path, keep=Retention(size=2000 * KIB))
    await write_large(store, 300, 100 * KIB)
    await until(lambda: store.revision - store.oldest <= 25, 0.05)
    assert store.get(a_key("large")) is not None
    assert size_of(path) < 20_000 * KIB  # of 30,000 that were written
    await store.close()


async def test_given_history_of_an_earlier_run_then_it_counts(path: Path) -> None:
    store = Store.open(path)
    await write_large(store, 40, 100 * KIB)
    await store.close()
    store = Store.open(path, keep=Retention(size=2000 * KIB))
    opened = store.revision
    await store.write(create("another"))
    await until(lambda: store.oldest >= opened - 1, 0.05)
    await store.close()


async def test_given_deleted_objects_then_the_file_shrinks(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "IDLE", 0.01)
    store = Store.open(path, keep=Retention(revisions=1, age=0, maximum=10))
    written = await store.write(*(create(f"o-{n}", "x" * 100 * KIB) for n in range(300)))
    await store.write(*(delete(each) for each in written))
    await write_large(store, 3, KIB)  # compaction is done in passing

    # 30,000 KiB were written
    await until(lambda: path.stat().st_size < 12_000 * KIB, 0.05)
    await store.close()


# ------------------------------------------------------------ verification


def corrupt(path: Path) -> None:
    """Change one byte of a value."""
    content = bytearray(path.read_bytes())
    content[content.rindex(b"precious")] ^= 1
    path.write_bytes(content)


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (store_database, store_module):
        monkeypatch.setattr(module, "VERIFY_AT_OPEN", 0)


async def filled(path: Path) -> None:
    store = Store.open(path)
    await store.write(create("one", "precious"))
    await store.close()


@pytest.mark.usefixtures("everything_is_large")
async def test_given_a_large_damaged_database_then_it_opens_and_verification_finds_it(
    path: Path,
) -> None:
    await filled(path)
    store = Store.open(path)
    await store.verify()
    await store.close()
    corrupt(path)
    store = Store.open(path)
    with pytest.raises(StoreCorrupt):
        await store.verify()
    await store.close()


async def test_given_a_small_damaged_database_then_it_is_not_opened(path: Path) -> None:
    await filled(path)
    corrupt(path)
    with pytest.raises(StoreCorrupt):
        Store.open(path)


# ------------------------------------------------------------ memory


async def test_given_a_watcher_that_takes_nothing_then_it_is_cut_off_by_bytes(path: Path) -> None:
    store = Store.open(path)
    watch = store.watch("configmaps", since=store.revision)
    await write_large(store, 20, 1000 * KIB)
    with pytest.raises(Overrun):
        await anext(watch)
    await store.close()


def test_given_large_events_then_those_that_left_the_ring_are_let_go() -> None:
    ring = Ring(floor=0, budget=1000 * KIB)
    ring.extend(
        [Event(number, "ADDED", a_key("x"), bytes(300 * KIB), None) for number in range(1, 11)]
    )
    assert [each.revision for each in ring.after(ring.floor, 100)] == [8, 9, 10]
    assert [each.revision for each in ring._decoded] == [8, 9, 10]
