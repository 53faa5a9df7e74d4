"""Short words for the store's tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from livevirt.kube.store import Delete, Encode, Event, Key, Put, Store, Stored, Watch


def a_key(name: str, namespace: str = "default", resource: str = "configmaps") -> Key:
    return Key(resource, namespace, name)


def saying(text: str) -> Encode:
    """An object with its own revision inside, as the API server writes them."""
    return lambda revision: json.dumps({"text": text, "revision": revision}).encode()


def create(name: str | Key, text: str = "new") -> Put:
    return Put(name if isinstance(name, Key) else a_key(name), None, saying(text))


def update(stored: Stored, text: str = "changed") -> Put:
    return Put(stored.key, stored.revision, saying(text))


def delete(stored: Stored, text: str = "last words") -> Delete:
    return Delete(stored.key, stored.revision, saying(text))


def failing(error: Exception) -> Callable[[int], bytes]:
    def encode(revision: int) -> bytes:
        raise error

    return encode


async def churn(store: Store, times: int, name: str = "churn") -> int:
    """Change one object many times, some changes to a commit; return the newest revision."""
    expected = None
    for start in range(0, times, 50):
        revision = store.revision
        changes = []
        for number in range(min(50, times - start)):
            changes.append(Put(a_key(name), expected, saying(str(start + number))))
            expected = revision + 1 + number  # consecutive, as nobody else writes
        await store.write(*changes)
    return store.revision


async def collect(watch: Watch, until: int) -> list[Event]:
    """Take events until the watch has handed out everything up to a revision."""
    events: list[Event] = []
    async with asyncio.timeout(10):
        while watch.progress < until:
            events += await anext(watch)
    return events


def replay(events: list[Event], state: dict[Key, bytes]) -> dict[Key, bytes]:
    """Return the state after the events, checking that they fit onto each other."""
    state = dict(state)
    for event in events:
        assert event.previous == state.get(event.key)
        assert (event.type == "ADDED") == (event.key not in state)
        if event.type == "DELETED":
            del state[event.key]
        else:
            state[event.key] = event.value
    return state


def state_of(store: Store, resource: str = "configmaps", **at: int) -> dict[Key, bytes]:
    return {item.key: item.value for item in store.list(resource, **at).items}


async def until(condition: Callable[[], bool], pause: float = 0) -> None:
    """Wait for something that nothing announces, looking at every turn of the loop or less."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(pause)
