from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livevirt.kube.controllers.stored import Feed
from livevirt.kube.store import Compacted, Event, Key, Put, Store
from livevirt.vm import kinds


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store.open(tmp_path / "store.db")
    yield store
    await store.close()


@contextlib.asynccontextmanager
async def running(feed: Feed) -> AsyncIterator[None]:
    task = asyncio.create_task(feed.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def put(store: Store, resource: str, name: str) -> None:
    await store.write(Put(Key(resource, "ns", name), None, lambda revision: b"{}"))


async def test_changes_of_every_resource_arrive_in_order_after_what_was_read(store: Store) -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()
    feed = Feed(store, kinds.REGISTRY)

    async def read() -> None:
        seen.put_nowait("read")
        await put(store, "pods", "while-reading")

    feed.subscribe(lambda event: seen.put_nowait(event.key.name), read)
    await put(store, "pods", "before")
    async with running(feed), asyncio.timeout(5):
        assert await seen.get() == "read"
        assert await seen.get() == "while-reading"
        await put(store, "secrets", "after")
        assert await seen.get() == "after"
    assert seen.empty()


async def test_a_listener_that_fails_costs_the_others_nothing(store: Store) -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()
    feed = Feed(store, kinds.REGISTRY)

    def fail(event: Event) -> None:
        raise RuntimeError("broken")

    feed.subscribe(fail)
    feed.subscribe(lambda event: seen.put_nowait(event.key.name))
    async with running(feed), asyncio.timeout(5):
        await asyncio.sleep(0)
        await put(store, "pods", "a")
        assert await seen.get() == "a"


async def test_after_a_gap_everything_is_read_again(store: Store) -> None:
    reads: asyncio.Queue[str] = asyncio.Queue()
    failures = [Compacted(1)]
    feed = Feed(store, kinds.REGISTRY)

    async def read() -> None:
        reads.put_nowait("read")
        if failures:
            raise failures.pop()

    feed.subscribe(lambda event: reads.put_nowait(event.key.name), read)
    async with running(feed), asyncio.timeout(5):
        assert [await reads.get(), await reads.get()] == ["read", "read"]
        await put(store, "pods", "a")
        assert await reads.get() == "a"


async def test_the_feed_ends_with_the_store(store: Store) -> None:
    task = asyncio.create_task(Feed(store, kinds.REGISTRY).run())
    await asyncio.sleep(0)
    await store.close()
    async with asyncio.timeout(5):
        await task
