"""Laws of the whole server, without its sockets: clients, verbs, admission and a store on disk."""

from __future__ import annotations

import asyncio
import copy
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from livevirt.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from livevirt.kube.admission import builtin
from livevirt.kube.client.interface import Patch
from livevirt.kube.client.local import LocalClient
from livevirt.kube.objects.core import CONFIG_MAP, NAMESPACE, QUOTA
from livevirt.kube.objects.request import Object, User
from livevirt.kube.server.api import Api
from livevirt.kube.server.services import Services, StoreReader
from livevirt.kube.store import Store
from livevirt.vm import kinds

SECONDS = 60.0
SPACES = ("one", "two")
bounded = settings(
    max_examples=40, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip


@asynccontextmanager
async def a_server() -> AsyncIterator[LocalClient]:
    """A client of a new and empty server."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "store.db")
        services = Services(
            store, builtin.RULES, lambda: datetime.now(UTC), StoreReader(store), kinds.REGISTRY
        )
        client = LocalClient(Api(services, {}), User("admin", ("system:masters",)))
        try:
            for space in SPACES:
                await client.create(NAMESPACE, {"metadata": {"name": space}})
            async with asyncio.timeout(SECONDS):
                yield client
        finally:
            await store.close()


def on_a_server(law: Callable[[LocalClient], Awaitable[None]]) -> None:
    async def run() -> None:
        async with a_server() as client:
            await law(client)

    asyncio.run(run())


def a_map(name: str, space: str = "one", **more: Any) -> Object:
    meta = {"name": name, "namespace": space, **more.pop("metadata", {})}
    return {"metadata": meta, **more}


# ---------------------------------------------------------------- list + watch = state

TIERS = ("a", "b", None)
#: What a watcher may want to see, and the last object at the end that matches it.
SELECTORS = {
    "": "last-a", "tier": "last-a", "tier=a": "last-a", "tier in (a,b)": "last-a",
    "!tier": "last-none", "tier!=a": "last-none", "tier notin (a,b)": "last-none",
}  # fmt: skip


@dataclass(frozen=True)
class Write:
    """Something that may be done to an object; whether it is there is not known beforehand."""

    how: str
    space: str
    name: str
    tier: str | None


@dataclass(frozen=True)
class Watcher:
    """Lists after so many writes; watches from there, at once or only when all is over."""

    selector: str
    space: str
    after: int
    late: bool


writes = st.lists(
    st.builds(
        Write,
        st.sampled_from(["create", "create", "label", "label", "touch", "delete", "hold", "free"]),
        st.sampled_from(SPACES),
        st.sampled_from(["x", "y"]),
        st.sampled_from(TIERS),
    ),
    min_size=12,
    max_size=40,
)
watchers = st.lists(
    st.builds(
        Watcher,
        st.sampled_from(list(SELECTORS)),
        st.sampled_from([*SPACES, ""]),
        st.integers(0, 12),
        st.booleans(),
    ),
    min_size=2,
    max_size=6,
)


async def perform(client: LocalClient, write: Write, number: int) -> None:
    """Do it if it can be done."""
    space, name = write.space, write.name

    async def patch(**meta: Any) -> None:
        await client.patch(CONFIG_MAP, name, space, {"metadata": meta})

    try:
        match write.how:
            case "create":
                labels = {"tier": write.tier} if write.tier else {}
                await client.create(CONFIG_MAP, a_map(name, space, metadata={"labels": labels}))
            case "label":
                await patch(labels={"tier": write.tier})
            case "touch":
                await client.patch(CONFIG_MAP, name, space, {"data": {"n": str(number)}})
            case "hold":
                await patch(finalizers=["example.com/hold"])
            case "free":
                await patch(finalizers=None)
            case "delete":
                await client.delete(CONFIG_MAP, name, space)
    except (NotFound, AlreadyExists, Invalid):
        pass  # Invalid: a finalizer on what is already being deleted


def keyed(objects: list[Object]) -> dict[tuple[str, str], Object]:
    return {(o["metadata"]["namespace"], o["metadata"]["name"]): o for o in objects}


async def replay(client: LocalClient, watcher: Watcher, listed: Any) -> dict[Any, Object]:
    """Follow the changes since a list, each of which must make sense; return where they lead."""
    state = keyed(listed.items)
    newest = int(listed.resource_version)
    space = watcher.space
    stream: Any = client.watch(
        CONFIG_MAP, space, resource_version=listed.resource_version, labels=watcher.selector
    )
    end = (space or SPACES[-1], SELECTORS[watcher.selector])
    async with aclosing(stream):
        async for event in stream:
            (key,) = keyed([event.object])
            version = int(event.object["metadata"]["resourceVersion"])
            assert version > newest, "events come in order, none twice"
            newest = version
            assert (key in state) == (event.type != "ADDED"), f"{event.type} of {key}"
            if event.type == "DELETED":
                del state[key]
            else:
                state[key] = event.object
            if key == end:
                return state
    raise AssertionError("the watch ended")


@bounded
@given(writes, watchers)
def test_given_a_list_and_the_changes_since_then_they_add_up_to_what_there_is(
    done: list[Write], seen: list[Watcher]
) -> None:
    async def law(client: LocalClient) -> None:
        lists: dict[Watcher, Any] = {}
        early: dict[Watcher, asyncio.Task[dict[Any, Object]]] = {}

        async def look(now: int, last: bool) -> None:
            for watcher in seen:
                if watcher in lists or not (watcher.after == now or last):
                    continue
                labels = watcher.selector
                listed = await client.list(CONFIG_MAP, watcher.space, labels=labels)
                lists[watcher] = listed
                if not watcher.late:
                    early[watcher] = asyncio.create_task(replay(client, watcher, listed))

        for number, write in enumerate(done):
            await look(number, last=False)
            await perform(client, write, number)
        await look(len(done), last=True)
        for space in SPACES:
            await client.create(CONFIG_MAP, a_map("last-none", space))
            await client.create(CONFIG_MAP, a_map("last-a", space, metadata={"labels": {"tier": "a"}}))  # fmt: skip  # noqa: E501
        for watcher, listed in lists.items():
            found = await (early.get(watcher) or replay(client, watcher, listed))
            now = await client.list(CONFIG_MAP, watcher.space, labels=watcher.selector)
            # A watch over all ends with the last object it wants, before others may come.
            assert found == keyed(now.items)

    on_a_server(law)


# ---------------------------------------------------------------- patches

keys = st.sampled_from(["k", "l", "m", "n"])
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
data = st.dictionaries(keys, texts, max_size=4)
data_patch = st.dictionaries(keys, st.none() | texts, max_size=4)


def merged(old: dict[str, str], patch: dict[str, str | None]) -> dict[str, str]:
    both = {**old, **patch}
    return {key: value for key, value in both.items() if value is not None}


@bounded
@given(data, data_patch)
def test_given_a_merge_patch_then_it_is_what_the_rfc_says_and_the_second_time_nothing(
    old: dict[str, str], patch: dict[str, str | None]
) -> None:
    async def law(client: LocalClient) -> None:
        for kind in ("merge", "strategic"):  # alike where there are no lists
            await client.create(CONFIG_MAP, a_map(kind, data=old))
            first = await client.patch(CONFIG_MAP, kind, "one", Patch(kind, {"data": patch}))
            assert first.get("data", {}) == merged(old, patch)
            again = await client.patch(CONFIG_MAP, kind, "one", Patch(kind, {"data": patch}))
            assert again == first
            assert await client.patch(CONFIG_MAP, kind, "one", Patch(kind, {})) == first

    on_a_server(law)


@bounded
@given(data, data)
def test_given_the_difference_of_two_objects_as_json_patch_then_it_leads_from_one_to_the_other(
    old: dict[str, str], new: dict[str, str]
) -> None:
    async def law(client: LocalClient) -> None:
        created = await client.create(CONFIG_MAP, a_map("a", data={"x": "y", **old}))
        steps = jsonpatch.make_patch(created["data"], {"x": "y", **new}).patch
        below = [_below("/data", step) for step in steps]
        patched = await client.patch(CONFIG_MAP, "a", "one", Patch("json", below))
        assert patched["data"] == {"x": "y", **new}
        assert (patched["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]) == (old != new)  # fmt: skip  # noqa: E501

        wrong = [{"op": "test", "path": "/data/x", "value": "z"}, *below]
        with pytest.raises(ApiError):
            await client.patch(CONFIG_MAP, "a", "one", Patch("json", wrong[::-1]))
        assert await client.get(CONFIG_MAP, "a", "one") == patched, "all of a patch or nothing"

    on_a_server(law)


def _below(root: str, step: Object) -> Object:
    return step | {part: root + step[part] for part in ("path", "from") if part in step}


@bounded
@given(data, data_patch, data_patch)
def test_given_a_patch_that_names_a_version_then_it_applies_to_that_one_only(
    old: dict[str, str], one: dict[str, str | None], two: dict[str, str | None]
) -> None:
    async def law(client: LocalClient) -> None:
        created = await client.create(CONFIG_MAP, a_map("a", data=old))
        version = created["metadata"]["resourceVersion"]
        first = {"metadata": {"resourceVersion": version}, "data": one}
        changed = await client.patch(CONFIG_MAP, "a", "one", first)
        assert changed.get("data", {}) == merged(old, one)
        second = copy.deepcopy(first) | {"data": two}
        if merged(old, one) == old:  # nothing changed, so the version is still the same
            await client.patch(CONFIG_MAP, "a", "one", second)
            return
        with pytest.raises(Conflict):
            await client.patch(CONFIG_MAP, "a", "one", second)
        assert await client.get(CONFIG_MAP, "a", "one") == changed

    on_a_server(law)


# ---------------------------------------------------------------- concurrent writers

CROWD = 16
WAYS = ("update", "test", "merge", "version")


async def add_one(client: LocalClient, way: str, own: str) -> None:
    """Count up in one of the ways that lose nothing, as often as it takes."""
    while True:
        current = await client.get(CONFIG_MAP, "counter", "one")
        total = str(int(current["data"]["total"]) + 1)
        version = current["metadata"]["resourceVersion"]
        try:
            match way:
                case "update":
                    changed = {**current, "data": {**current["data"], "total": total}}
                    await client.update(CONFIG_MAP, changed)
                case "version":
                    meta = {"resourceVersion": version}
                    patch = {"metadata": meta, "data": {"total": total}}
                    await client.patch(CONFIG_MAP, "counter", "one", patch)
                case "test":
                    path, old = "/data/total", current["data"]["total"]
                    steps = [{"op": "test", "path": path, "value": old},
                             {"op": "replace", "path": path, "value": total}]  # fmt: skip
                    await client.patch(CONFIG_MAP, "counter", "one", Patch("json", steps))
                case _:  # each its own field: nothing to collide with
                    count = str(int(current["data"].get(own, "0")) + 1)
                    await client.patch(CONFIG_MAP, "counter", "one", {"data": {own: count}})
        except (Conflict, Invalid):
            continue
        return


@bounded
@given(st.lists(st.lists(st.sampled_from(WAYS), max_size=5), min_size=2, max_size=8))
def test_given_writers_at_the_same_time_then_no_update_is_lost(plans: list[list[str]]) -> None:
    async def law(client: LocalClient) -> None:
        await client.create(CONFIG_MAP, a_map("counter", data={"total": "0"}))

        async def writer(number: int, plan: list[str]) -> None:
            for way in plan:
                await add_one(client, way, f"own-{number}")

        await asyncio.gather(*(writer(*numbered) for numbered in enumerate(plans)))
        counted = (await client.get(CONFIG_MAP, "counter", "one"))["data"]
        own = [plan.count("merge") for plan in plans]
        assert int(counted["total"]) == sum(map(len, plans)) - sum(own)
        assert [int(counted.get(f"own-{n}", "0")) for n in range(len(plans))] == own

    on_a_server(law)


@bounded
@given(st.integers(2, 8))
def test_given_creators_of_one_name_then_exactly_one_succeeds(count: int) -> None:
    async def law(client: LocalClient) -> None:
        tries = (client.create(CONFIG_MAP, a_map("a", data={"by": str(n)})) for n in range(count))
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        made = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        assert [await client.get(CONFIG_MAP, "a", "one")] == made
        refused = [type(outcome) for outcome in outcomes if outcome is not made[0]]
        assert refused == [AlreadyExists] * (count - 1)

    on_a_server(law)


def test_given_many_unconditional_writers_of_one_object_then_none_is_turned_away() -> None:
    async def law(client: LocalClient) -> None:
        await client.create(CONFIG_MAP, a_map("counter"))

        async def writer(number: int) -> None:
            for turn in range(25):
                patch = {"data": {f"writer-{number}": str(turn)}}
                await client.patch(CONFIG_MAP, "counter", "one", patch)

        await asyncio.gather(*(writer(number) for number in range(CROWD)))
        counted = (await client.get(CONFIG_MAP, "counter", "one"))["data"]
        assert counted == {f"writer-{number}": "24" for number in range(CROWD)}

    on_a_server(law)


def test_given_many_creators_under_one_quota_then_it_is_filled_to_the_brim_and_no_further() -> None:
    async def law(client: LocalClient) -> None:
        hard = {"count/configmaps": str(5 * CROWD)}
        await client.create(QUOTA, a_map("q", spec={"hard": hard}))
        status = {"status": {"hard": hard, "used": {"count/configmaps": "0"}}}
        await client.patch(QUOTA, "q", "one", status, subresource="status")

        async def creator(number: int) -> list[type[BaseException]]:
            refused: list[type[BaseException]] = []
            for turn in range(6):
                try:
                    await client.create(CONFIG_MAP, a_map(f"a-{number}-{turn}"))
                except ApiError as error:
                    refused.append(type(error))
            return refused

        refusals = await asyncio.gather(*(creator(number) for number in range(CROWD)))
        assert [kind for kinds in refusals for kind in kinds] == [Forbidden] * CROWD
        assert len((await client.list(CONFIG_MAP, "one")).items) == 5 * CROWD
        quota = await client.get(QUOTA, "q", "one")
        assert quota["status"]["used"] == hard

    on_a_server(law)
