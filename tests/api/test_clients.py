"""Both clients, and what controllers are made of, against the real server: the same either way."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from livevirt.errors import AlreadyExists, ApiError, Conflict, Invalid, NotFound
from livevirt.kube.admission import builtin
from livevirt.kube.client import kubeconfig
from livevirt.kube.client.interface import Client, Patch
from livevirt.kube.client.local import LocalClient
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.control.cache import Key
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.informer import Informer
from livevirt.kube.control.lease import Election
from livevirt.kube.objects.core import CONFIG_MAP, EVENT, LEASE, NAMESPACE
from livevirt.kube.objects.request import Object, User
from livevirt.kube.server.api import Api
from livevirt.kube.server.services import Services, StoreReader
from livevirt.kube.store import Store
from livevirt.vm import kinds

from . import manifests


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a server of its own process."""
    data = tmp_path_factory.mktemp("data")
    command = [str(Path(sys.executable).parent / "livevirt")]
    up = [*command, "up", "--data-dir", str(data), "--listen", "127.0.0.1:0", "--detach"]
    subprocess.run(up, check=True, capture_output=True, timeout=60)
    yield data / "kubeconfig"
    down = [*command, "down", "--data-dir", str(data)]
    subprocess.run(down, check=True, capture_output=True, timeout=60)


@pytest.fixture(params=["local", "remote"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    client: Client
    if request.param == "remote":
        client = RemoteClient(kubeconfig.find(str(request.getfixturevalue("running"))))
        yield client
        for left in (await client.list(CONFIG_MAP, "default")).items:
            await client.delete(CONFIG_MAP, left["metadata"]["name"], "default")
        await client.close()
    else:
        store = Store.open(tmp_path / "store.db")
        api = Api(Services(store, builtin.RULES, now, StoreReader(store), kinds.REGISTRY), {})
        client = LocalClient(api, User("admin", ("system:masters",)))
        await client.create(NAMESPACE, {"metadata": {"name": "default"}})
        yield client
        await client.close()
        await store.close()


a_map = functools.partial(manifests.a_map, namespace="default")


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is nobody to set an event
            await asyncio.sleep(0.01)


async def test_objects_are_created_changed_and_deleted(client: Client) -> None:
    created = await client.create(CONFIG_MAP, a_map("a", x="1"))
    assert (created["kind"], created["apiVersion"]) == ("ConfigMap", "v1")
    changed = await client.update(CONFIG_MAP, created | {"data": {"x": "2"}})
    assert changed["metadata"]["uid"] == created["metadata"]["uid"]
    await client.patch(CONFIG_MAP, "a", "default", {"data": {"y": "3"}})
    add = [{"op": "add", "path": "/data/z", "value": "4"}]
    await client.patch(CONFIG_MAP, "a", "default", Patch("json", add))
    got = await client.get(CONFIG_MAP, "a", "default")
    assert got["data"] == {"x": "2", "y": "3", "z": "4"}
    await client.delete(CONFIG_MAP, "a", "default", uid=got["metadata"]["uid"])
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAP, "a", "default")


async def test_a_dry_run_leaves_nothing(client: Client) -> None:
    await client.create(CONFIG_MAP, a_map("a"), dry_run=True)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAP, "a", "default")
    await client.create(CONFIG_MAP, a_map("a", x="1"))
    patch = {"data": {"x": "2"}}
    would_be = await client.patch(CONFIG_MAP, "a", "default", patch, dry_run=True)
    assert would_be["data"] == {"x": "2"}
    assert (await client.get(CONFIG_MAP, "a", "default"))["data"] == {"x": "1"}


async def test_refusals_are_the_same_errors(client: Client) -> None:
    old = await client.create(CONFIG_MAP, a_map("a"))
    await client.update(CONFIG_MAP, a_map("a", x="1"))
    refused: list[tuple[type[ApiError], object]] = []
    for kind, call in (
        (Conflict, client.update(CONFIG_MAP, old)),
        (AlreadyExists, client.create(CONFIG_MAP, a_map("a"))),
        (Conflict, client.delete(CONFIG_MAP, "a", "default", uid="another")),
        (NotFound, client.delete(CONFIG_MAP, "b", "default")),
        (Invalid, client.create(CONFIG_MAP, a_map("Not A Name"))),
    ):
        with pytest.raises(kind) as caught:
            await call
        refused.append((type(caught.value), caught.value.status_code))
    assert [code for _, code in refused] == [409, 409, 409, 404, 422]


async def test_pages_and_selectors(client: Client) -> None:
    for name in ("a", "b", "c"):
        await client.create(CONFIG_MAP, a_map(name))
    page = await client.list(CONFIG_MAP, "default", limit=2)
    rest = await client.list(CONFIG_MAP, "default", limit=2, continue_=page.continue_)
    names = [obj["metadata"]["name"] for obj in page.items + rest.items]
    assert names == ["a", "b", "c"]
    assert rest.continue_ == ""
    assert {obj["kind"] for obj in page.items} == {"ConfigMap"}
    one = await client.list(CONFIG_MAP, "default", fields="metadata.name=b")
    assert [obj["metadata"]["name"] for obj in one.items] == ["b"]


async def test_a_watch_goes_on_from_a_list(client: Client) -> None:
    start = (await client.list(CONFIG_MAP, "default")).resource_version
    await client.create(CONFIG_MAP, a_map("a"))
    await client.patch(CONFIG_MAP, "a", "default", {"data": {"x": "1"}})
    await client.delete(CONFIG_MAP, "a", "default")
    seen = []
    async with asyncio.timeout(60):
        async for event in client.watch(
            CONFIG_MAP, "default", resource_version=start, bookmarks=False
        ):
            seen.append((event.type, event.object["metadata"]["name"]))
            if event.type == "DELETED":
                break
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_an_informer_and_a_controller_follow_the_server(client: Client) -> None:
    """The controller writes the number of keys into each map, and sees its own writes settle."""
    maps = Informer(client, CONFIG_MAP, "default", labels="counted=yes")

    async def reconcile(key: Key) -> Result:
        try:
            obj = await client.get(CONFIG_MAP, key.name, key.namespace)
        except NotFound:
            return DONE
        count = str(len([name for name in obj.get("data", {}) if name != "count"]))
        if obj.get("data", {}).get("count") != count:
            version = obj["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "data": {"count": count}}
            await client.patch(CONFIG_MAP, key.name, key.namespace, patch)
        return DONE

    controller = Controller("counter", reconcile, workers=3).watches(maps)

    def counts() -> dict[str, str]:
        return {obj["metadata"]["name"]: obj["data"].get("count") for obj in maps.list()}

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(maps.run()), group.create_task(controller.run())]
        for name in ("a", "b", "c"):
            obj = a_map(name, x="1")
            obj["metadata"]["labels"] = {"counted": "yes"}
            await client.create(CONFIG_MAP, obj)
        await eventually(lambda: counts() == {"a": "1", "b": "1", "c": "1"})
        await client.patch(CONFIG_MAP, "b", "default", {"data": {"y": "2", "z": "3"}})
        await client.patch(CONFIG_MAP, "c", "default", {"metadata": {"labels": None}})
        await client.delete(CONFIG_MAP, "a", "default")
        await eventually(lambda: counts() == {"b": "3"})
        for task in tasks:
            task.cancel()


async def record_events(client: Client, reason: str, *messages: str) -> list[Object]:
    """Record events of one object that differ in their message only; return what is stored."""
    recorder = Recorder(client, "tester", now)
    about = await client.create(CONFIG_MAP, a_map("about"))
    for message in messages:
        recorder.event(about, "Normal", reason, message)
    await recorder.close()
    events = (await client.list(EVENT, "default", fields=f"reason={reason}")).items
    assert {event["involvedObject"]["uid"] for event in events} == {about["metadata"]["uid"]}
    return events


async def test_repeated_events_are_one_event(client: Client) -> None:
    events = await record_events(client, "Repeated", "first", "second", "second", "second")
    assert sorted(event["count"] for event in events) == [1, 3]


@pytest.mark.wording
async def test_an_event_carries_its_message(client: Client) -> None:
    events = await record_events(client, "Tested", "it works")
    assert [event["message"] for event in events] == ["it works"]


async def test_the_lease_passes_from_one_candidate_to_the_next(client: Client) -> None:
    order: list[str] = []

    async def work() -> None:
        lease = await client.get(LEASE, "leader", "default")
        order.append(lease["spec"]["holderIdentity"])

    for identity in ("one", "two"):
        async with asyncio.timeout(60):
            await Election(client, Key("default", "leader"), identity, now).run(work)
    lease = await client.get(LEASE, "leader", "default")
    assert order == ["one", "two"]
    assert lease["spec"]["holderIdentity"] == ""
    assert lease["spec"]["leaseTransitions"] == 1
