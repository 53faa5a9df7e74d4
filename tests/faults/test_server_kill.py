"""The server is killed at random moments while clients write and watch over HTTP.

What it acknowledged is there afterwards, versions only ever grow, and a watcher that comes back
with the last version it saw misses nothing and sees nothing twice.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from ..server_process import ServerProcess, running_server

pytestmark = pytest.mark.slow
WRITERS = 16
WATCHERS = 3
OWN = 2  # objects of each writer, besides its key in the object that all share
SHARED = "shared"
SPACE = "/api/v1/namespaces/default/configmaps"
SECONDS = 60.0
GONE = (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError)
Place = tuple[str, str]  # an object and a key in its data


class Client:
    """The administrator, of whichever process serves now."""

    def __init__(self, server: ServerProcess, session: aiohttp.ClientSession) -> None:
        self._server, self._session = server, session

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        async with self._session.request(
            method, self._server.url + path, json=body, headers={"Content-Type": kind}
        ) as answer:
            return answer.status, await answer.json()

    @asynccontextmanager
    async def watch(self, since: int) -> AsyncIterator[aiohttp.StreamReader]:
        query = f"watch=1&resourceVersion={since}"
        async with self._session.get(f"{self._server.url}{SPACE}?{query}") as answer:
            assert answer.status == 200, await answer.text()
            yield answer.content


@asynccontextmanager
async def administrator(server: ServerProcess) -> AsyncIterator[Client]:
    connector = aiohttp.TCPConnector(ssl=server.admin(), limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Client(server, session)


@dataclass
class Record:
    """What the clients know, over all lives of the server."""

    acknowledged: dict[Place, str | None] = field(default_factory=dict)
    under_way: dict[Place, str | None] = field(default_factory=dict)
    versions: dict[int, tuple[str, dict[str, str]]] = field(default_factory=dict)
    newest: int = 0  # of any life before this one
    enough: int = 0  # acknowledgements after which the server dies
    count: int = 0
    tired: asyncio.Event = field(default_factory=asyncio.Event)

    def acknowledge(self, place: Place, value: str | None, answer: Any) -> None:
        self.acknowledged[place] = value
        del self.under_way[place]
        if answer["kind"] == "ConfigMap":
            version = int(answer["metadata"]["resourceVersion"])
            assert version > self.newest, "a version went back, or was given out again"
            assert version not in self.versions, "a version was given out twice"
            self.versions[version] = (place[0], answer.get("data", {}))
        self.count += 1
        if self.count >= self.enough:
            self.tired.set()


async def write(client: Client, record: Record, number: int, chance: random.Random) -> None:
    """Create, change and delete objects of its own until the server is gone."""
    name = chance.choice([SHARED, *(f"writer-{number}-{n}" for n in range(OWN))])
    place = (name, f"key-{number}" if name == SHARED else "count")
    before = record.acknowledged.get(place)
    after: str | None = str(int(before or 0) + chance.randint(1, 9))
    body: Any = {"data": {place[1]: after}}
    if name == SHARED or (before is not None and chance.random() < 0.8):
        method, path = "PATCH", f"{SPACE}/{name}"
    elif before is None:
        method, path, body = "POST", SPACE, {"metadata": {"name": name}, **body}
    else:
        method, path, body, after = "DELETE", f"{SPACE}/{name}", None, None
    record.under_way[place] = after
    status, answer = await client.call(method, path, body)
    assert status in (200, 201), f"{method} {path}: {answer}"
    record.acknowledge(place, after, answer)


async def keep_writing(client: Client, record: Record, number: int, seed: str) -> None:
    chance = random.Random(seed)
    try:
        while True:
            await write(client, record, number, chance)
    except GONE:
        return


@dataclass
class Watcher:
    """Follows all changes, over as many connections as it takes."""

    since: int
    events: list[tuple[int, str, str, dict[str, str]]] = field(default_factory=list)

    async def follow(self, client: Client, until: str = "") -> None:
        """Read until the server is gone, or until an object of that name has come."""
        try:
            async with client.watch(self.since) as lines:
                async for line in lines:
                    if not line.endswith(b"\n"):
                        return  # cut off in the middle: not seen
                    if self._note(json.loads(line)) == until:
                        return
        except GONE:
            return

    def _note(self, event: Any) -> str:
        assert event["type"] != "ERROR", event
        obj = event["object"]
        meta = obj["metadata"]
        version, name = int(meta["resourceVersion"]), str(meta["name"])
        assert version > self.since, "an event came twice, or out of order"
        self.since = version
        self.events.append((version, event["type"], name, obj.get("data", {})))
        return name


async def read_all(client: Client) -> tuple[int, dict[str, dict[str, str]]]:
    status, listed = await client.call("GET", SPACE)
    assert status == 200
    found = {item["metadata"]["name"]: item.get("data", {}) for item in listed["items"]}
    return int(listed["metadata"]["resourceVersion"]), found


def settle(record: Record, watchers: list[Watcher], revision: int, found: Any) -> None:
    """Compare what a new life of the server has with what clients knew of the last one."""
    assert revision >= max(record.versions, default=0), "an acknowledged version is gone"
    assert revision >= max(watcher.since for watcher in watchers), "a watched version is gone"
    for place, value in record.acknowledged.items():
        there = found.get(place[0], {}).get(place[1])
        possible = {value, record.under_way.get(place, value)}
        assert there in possible, f"{place} was acknowledged as {value} and is {there}"
    for place in {**record.acknowledged, **record.under_way}:
        record.acknowledged[place] = found.get(place[0], {}).get(place[1])
    record.under_way.clear()
    record.newest = revision


async def one_life(
    server: ServerProcess, record: Record, watchers: list[Watcher], seed: str
) -> None:
    """Start the server, look at what it has, write and watch, kill it."""
    await asyncio.to_thread(server.start)
    async with administrator(server) as client:
        settle(record, watchers, *await read_all(client))
        chance = random.Random(seed)
        record.enough = record.count + chance.randint(1, 400)
        record.tired.clear()
        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
            for watcher in watchers:
                group.create_task(watcher.follow(client))
            for number in range(WRITERS):
                group.create_task(keep_writing(client, record, number, f"{seed}-{number}"))
            await record.tired.wait()
            server.kill()


async def compare(server: ServerProcess, record: Record, watchers: list[Watcher]) -> None:
    """After the last kill: everybody catches up, and all that they saw must agree."""
    await asyncio.to_thread(server.start)
    async with administrator(server) as client, asyncio.timeout(SECONDS):
        settle(record, watchers, *await read_all(client))
        status, _ = await client.call("POST", SPACE, {"metadata": {"name": "the-end"}})
        assert status == 201
        await asyncio.gather(*(watcher.follow(client, "the-end") for watcher in watchers))
        _, found = await read_all(client)
    first, *others = watchers
    assert all(watcher.events == first.events for watcher in others)
    seen = {version: (name, data) for version, _, name, data in first.events}
    assert record.versions.items() <= seen.items(), "an acknowledged write was not watched"
    replayed: dict[str, dict[str, str]] = {}
    for _, kind, name, data in first.events:
        assert (name in replayed) == (kind != "ADDED"), f"{kind} of {name}"
        if kind == "DELETED":
            del replayed[name]
        else:
            replayed[name] = data
    assert replayed == {name: data for name, data in found.items() if name != "kube-root-ca.crt"}


async def survive(rounds: int, seed: int) -> None:
    with running_server() as server:
        async with administrator(server) as client:
            version, _ = await read_all(client)
            status, _ = await client.call("POST", SPACE, {"metadata": {"name": SHARED}})
            assert status == 201
        server.kill()
        record = Record(newest=version)
        watchers = [Watcher(version) for _ in range(WATCHERS)]
        for number in range(rounds):
            await one_life(server, record, watchers, f"{seed}-{number}")
        await compare(server, record, watchers)
        assert record.count > rounds


async def test_given_the_server_is_killed_while_clients_write_and_watch_then_nothing_is_lost() -> (
    None
):
    await survive(rounds=3, seed=16)


@pytest.mark.soak
async def test_given_fifty_kills_while_clients_write_and_watch_then_nothing_is_lost() -> None:
    await survive(rounds=50, seed=50)
