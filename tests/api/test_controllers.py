"""The embedded controllers against a real server, without its sockets."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from livevirt.kube.admission import builtin
from livevirt.kube.client.local import LocalClient
from livevirt.kube.controllers import embedded
from livevirt.kube.controllers.events import LONGEST, Expiry
from livevirt.kube.controllers.scheduler import controller as scheduling
from livevirt.kube.objects import conditions, core, times
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, User
from livevirt.kube.server.api import Api
from livevirt.kube.server.services import Services, StoreReader
from livevirt.kube.store import Store
from livevirt.vm import kinds

NAMESPACE = "team"


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class World:
    """A server, a client of it, and what the store holds right now."""

    store: Store
    client: LocalClient
    read: StoreReader

    def get(self, kind: Kind, name: str, namespace: str = NAMESPACE) -> Object | None:
        return self.read.get(kind, name, namespace)

    async def until(self, holds: Callable[[], Any]) -> None:
        """Return once it holds, asking again after every change of the store."""
        watch = self.store.watch(None, since=self.store.revision)
        try:
            async with asyncio.timeout(60):
                while not holds():
                    await anext(watch)
        finally:
            watch.close()

    async def create(self, kind: Kind, name: str, **rest: Any) -> Object:
        metadata = {"name": name, **rest.pop("metadata", {})}
        namespace = NAMESPACE if kind.namespaced else ""
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **rest}
        return await self.client.create(kind, obj, namespace)

    async def config_map(self, name: str, *owners: Object, **metadata: Any) -> Object:
        if owners:
            metadata["ownerReferences"] = list(owners)
        return await self.create(core.CONFIG_MAP, name, metadata=metadata)

    def config_maps(self) -> set[str]:
        found = self.read.list(core.CONFIG_MAP, NAMESPACE)
        return {obj["metadata"]["name"] for obj in found}

    async def node(self, name: str, **allocatable: str) -> None:
        await self.create(core.NODE, name)
        room = {"cpu": "4", "memory": "8Gi", "pods": "110"} | allocatable
        status = {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
        await self.client.patch(core.NODE, name, "", {"status": status}, subresource="status")

    async def pod(self, name: str, memory: str = "1Gi", **spec: Any) -> Object:
        container = {"name": "c", "image": "i", "resources": {"requests": {"memory": memory}}}
        return await self.create(core.POD, name, spec={"containers": [container], **spec})

    def node_of(self, pod: str) -> str:
        return (self.get(core.POD, pod) or {"spec": {}})["spec"].get("nodeName", "")

    def waits(self, pod: str) -> str:
        """Return the message of a pod that cannot be scheduled, else nothing."""
        status = (self.get(core.POD, pod) or {}).get("status") or {}
        scheduled = conditions.find(status.get("conditions"), "PodScheduled") or {}
        unschedulable = (scheduled.get("status"), scheduled.get("reason"))
        return scheduled["message"] if unschedulable == ("False", "Unschedulable") else ""

    def events(self, name: str, reason: str) -> list[str]:
        """Return the messages of an object's events with this reason."""
        return [
            event["message"]
            for event in self.read.list(core.EVENT, NAMESPACE)
            if (event["involvedObject"]["name"], event["reason"]) == (name, reason)
        ]


def owned_by(owner: Object, **rest: Any) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **rest,
    }


@pytest.fixture
async def quiet(tmp_path: Path) -> AsyncIterator[World]:
    """A server whose controllers do not run yet."""
    store = Store.open(tmp_path / "store.db")
    reader = StoreReader(store)
    api = Api(Services(store, builtin.RULES, now, reader, kinds.REGISTRY), {})
    world = World(store, LocalClient(api, User("system:admin", ("system:masters",))), reader)
    await world.create(core.NAMESPACE, NAMESPACE)
    yield world
    await store.close()


@contextlib.asynccontextmanager
async def running(world: World) -> AsyncIterator[None]:
    controllers = asyncio.create_task(embedded.run(world.client, world.store, now, kinds.REGISTRY))
    try:
        yield
        assert not controllers.done(), "the controllers must never end by themselves"
    finally:
        controllers.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await controllers


@pytest.fixture
async def world(quiet: World) -> AsyncIterator[World]:
    async with running(quiet):
        yield quiet


# ---------------------------------------------------------------- garbage collection


async def test_dependents_of_a_deleted_owner_go_at_every_depth(world: World) -> None:
    owner = await world.config_map("owner")
    child = await world.config_map("child", owned_by(owner))
    await world.config_map("grandchild", owned_by(child))
    await world.config_map("bystander")
    await world.client.delete(core.CONFIG_MAP, "owner", NAMESPACE)
    await world.until(lambda: world.config_maps() == {"bystander"})


async def test_a_dependent_of_an_owner_that_never_was_goes(world: World) -> None:
    owner = await world.config_map("owner")
    await world.config_map("stale", owned_by(owner) | {"uid": "00000000"})
    await world.until(lambda: world.config_maps() == {"owner"})


async def test_a_dependent_of_a_kind_nobody_knows_stays(world: World) -> None:
    stranger = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "1"}
    await world.config_map("kept", stranger)
    await world.config_map("gone", stranger | {"apiVersion": "v1", "kind": "Secret"})
    await world.until(lambda: world.config_maps() == {"kept"})


async def test_orphans_made_while_nobody_collected_are_found_at_the_start(quiet: World) -> None:
    owner = await quiet.config_map("owner")
    await quiet.config_map("child", owned_by(owner))
    await quiet.client.delete(core.CONFIG_MAP, "owner", NAMESPACE)
    async with running(quiet):
        await quiet.until(lambda: not quiet.config_maps())


async def test_a_foreground_deletion_waits_for_dependents_that_block(world: World) -> None:
    owner = await world.config_map("owner")
    reference = owned_by(owner, blockOwnerDeletion=True)
    await world.config_map("child", reference, finalizers=["example.com/hold"])
    await world.client.delete(core.CONFIG_MAP, "owner", NAMESPACE, propagation="Foreground")
    await world.until(lambda: _deleting(world.get(core.CONFIG_MAP, "child")))
    held = world.get(core.CONFIG_MAP, "owner")
    assert held is not None
    assert held["metadata"]["finalizers"] == ["foregroundDeletion"]
    release = {"metadata": {"finalizers": None}}
    await world.client.patch(core.CONFIG_MAP, "child", NAMESPACE, release)
    await world.until(lambda: not world.config_maps())


async def test_a_foreground_deletion_goes_through_every_depth(world: World) -> None:
    owner = await world.config_map("owner")
    child = await world.config_map("child", owned_by(owner, blockOwnerDeletion=True))
    await world.config_map("grandchild", owned_by(child, blockOwnerDeletion=True))
    await world.client.delete(core.CONFIG_MAP, "owner", NAMESPACE, propagation="Foreground")
    await world.until(lambda: not world.config_maps())


async def test_objects_that_own_each_other_can_be_deleted_in_the_foreground(world: World) -> None:
    one = await world.config_map("one")
    two = await world.config_map("two", owned_by(one, blockOwnerDeletion=True))
    back = {"metadata": {"ownerReferences": [owned_by(two, blockOwnerDeletion=True)]}}
    await world.client.patch(core.CONFIG_MAP, "one", NAMESPACE, back)
    await world.client.delete(core.CONFIG_MAP, "one", NAMESPACE, propagation="Foreground")
    await world.until(lambda: not world.config_maps())


async def test_an_orphaning_deletion_leaves_the_dependents(world: World) -> None:
    owner = await world.config_map("owner")
    await world.config_map("child", owned_by(owner))
    await world.client.delete(core.CONFIG_MAP, "owner", NAMESPACE, propagation="Orphan")
    await world.until(lambda: world.config_maps() == {"child"})
    child = world.get(core.CONFIG_MAP, "child")
    assert child is not None
    assert "ownerReferences" not in child["metadata"]


async def test_a_dependent_with_another_owner_loses_only_the_dead_one(world: World) -> None:
    dead, living = await world.config_map("dead"), await world.config_map("living")
    await world.config_map("child", owned_by(dead), owned_by(living, controller=True))
    await world.client.delete(core.CONFIG_MAP, "dead", NAMESPACE)

    def references() -> list[Object]:
        child = world.get(core.CONFIG_MAP, "child")
        assert child is not None
        return child["metadata"]["ownerReferences"]  # type: ignore[no-any-return]

    await world.until(lambda: references() == [owned_by(living, controller=True)])


def _deleting(obj: Object | None) -> bool:
    return obj is not None and "deletionTimestamp" in obj["metadata"]


# ---------------------------------------------------------------- namespaces


async def test_a_deleted_namespace_goes_with_all_it_holds(world: World) -> None:
    await world.config_map("a")
    await world.create(core.SECRET, "held", metadata={"finalizers": ["example.com/hold"]})
    await world.client.delete(core.NAMESPACE, NAMESPACE)

    def waits_for_the_secret() -> bool:
        status = (world.get(core.NAMESPACE, NAMESPACE) or {}).get("status") or {}
        return conditions.is_true(
            status.get("conditions"), "NamespaceContentRemaining"
        ) and conditions.is_true(status.get("conditions"), "NamespaceFinalizersRemaining")

    await world.until(waits_for_the_secret)
    assert not world.config_maps()
    release = {"metadata": {"finalizers": None}}
    await world.client.patch(core.SECRET, "held", NAMESPACE, release)
    await world.until(lambda: world.get(core.NAMESPACE, NAMESPACE) is None)
    assert world.get(core.SERVICE_ACCOUNT, "default") is None


async def test_every_namespace_has_a_default_service_account(world: World) -> None:
    def account() -> Object | None:
        return world.get(core.SERVICE_ACCOUNT, "default")

    await world.until(account)
    first = account()
    assert first is not None
    await world.client.delete(core.SERVICE_ACCOUNT, "default", NAMESPACE)
    await world.until(lambda: (again := account()) is not None
                      and again["metadata"]["uid"] != first["metadata"]["uid"])  # fmt: skip


# ---------------------------------------------------------------- quota, events


async def test_a_quota_is_counted_when_made_and_when_things_go(world: World) -> None:
    await world.config_map("a")
    await world.config_map("b")
    hard = {"count/configmaps": "5", "pods": "3", "requests.memory": "4Gi"}
    await world.create(core.QUOTA, "q", spec={"hard": hard})

    def used() -> dict[str, str]:
        quota = world.get(core.QUOTA, "q")
        assert quota is not None
        return (quota.get("status") or {}).get("used") or {}

    await world.until(lambda: used().get("count/configmaps") == "2")
    await world.client.delete(core.CONFIG_MAP, "a", NAMESPACE)
    await world.until(lambda: used()["count/configmaps"] == "1")
    await world.pod("p", memory="1Gi")
    assert (used()["pods"], used()["requests.memory"]) == ("1", "1Gi")
    ended = {"status": {"phase": "Succeeded"}}
    await world.client.patch(core.POD, "p", NAMESPACE, ended, subresource="status")
    await world.until(lambda: (used()["pods"], used()["requests.memory"]) == ("0", "0"))


async def test_events_go_an_hour_after_they_last_happened(quiet: World) -> None:
    for name, age in (("old", timedelta(hours=2)), ("new", timedelta(minutes=10))):
        stamp = times.format_time(now() - age)
        involved = {"kind": "Pod", "name": "p", "namespace": NAMESPACE}
        await quiet.create(
            core.EVENT, name, involvedObject=involved, lastTimestamp=stamp, reason="R"
        )
    wait = await Expiry(quiet.client, quiet.store, now).sweep()
    assert quiet.get(core.EVENT, "old") is None
    assert quiet.get(core.EVENT, "new") is not None
    assert wait == LONGEST  # it expires later than that


# ---------------------------------------------------------------- scheduling


async def test_a_pod_gets_a_node_and_an_event(world: World) -> None:
    await world.node("n1")
    await world.pod("p")
    await world.until(lambda: world.node_of("p") == "n1")
    await world.until(lambda: world.events("p", "Scheduled"))


@pytest.mark.wording
async def test_the_event_of_a_scheduled_pod_names_the_node(world: World) -> None:
    await world.node("n1")
    await world.pod("p")
    message = f"Successfully assigned {NAMESPACE}/p to n1"
    await world.until(lambda: world.events("p", "Scheduled") == [message])


async def test_a_pod_of_another_scheduler_is_left_alone(world: World) -> None:
    await world.node("n1")
    await world.pod("theirs", schedulerName="another")
    await world.pod("ours")
    await world.until(lambda: world.node_of("ours"))
    assert world.node_of("theirs") == ""


async def test_a_pod_that_fits_nowhere_waits_for_a_larger_node(world: World) -> None:
    await world.pod("p", memory="16Gi")
    await world.until(lambda: world.waits("p"))
    without_nodes = world.waits("p")
    await world.node("n1")
    await world.until(lambda: world.waits("p") not in ("", without_nodes))
    await world.until(lambda: world.waits("p") in world.events("p", "FailedScheduling"))
    await world.node("n2", memory="32Gi")
    await world.until(lambda: world.node_of("p") == "n2")
    scheduled = conditions.find(
        (world.get(core.POD, "p") or {})["status"]["conditions"], "PodScheduled"
    )
    assert scheduled is not None
    assert (scheduled["status"], "message" in scheduled) == ("True", False)


@pytest.mark.wording
async def test_the_message_of_a_pod_that_fits_nowhere_names_what_is_missing(world: World) -> None:
    await world.pod("p", memory="16Gi")
    await world.until(lambda: world.waits("p") == "no nodes available to schedule pods")
    await world.node("n1")
    insufficient = (
        "0/1 nodes are available: 1 Insufficient memory. preemption: 0/1 nodes are available:"
        " 1 Preemption is not helpful for scheduling."
    )
    await world.until(lambda: world.waits("p") == insufficient)
    await world.until(lambda: insufficient in world.events("p", "FailedScheduling"))


@pytest.mark.wording
async def test_the_message_of_a_pod_without_room_mentions_preemption(world: World) -> None:
    await world.node("n1")
    await world.pod("first", memory="6Gi")
    await world.until(lambda: world.node_of("first"))
    await world.pod("second", memory="6Gi")
    await world.until(lambda: "No preemption victims" in world.waits("second"))


async def test_a_pod_gets_the_room_another_leaves(world: World) -> None:
    await world.node("n1")
    await world.pod("first", memory="6Gi")
    await world.until(lambda: world.node_of("first"))
    await world.pod("second", memory="6Gi")
    await world.until(lambda: world.waits("second"))
    await world.client.delete(core.POD, "first", NAMESPACE, grace_seconds=0)
    await world.until(lambda: world.node_of("second") == "n1")


async def test_pods_are_scheduled_by_priority(quiet: World) -> None:
    await quiet.create(core.PRIORITY_CLASS, "high", value=1000)
    await quiet.create(core.PRIORITY_CLASS, "low", value=-10)
    await quiet.node("n", memory="1Gi")
    await quiet.pod("unimportant", priorityClassName="low")
    await quiet.pod("usual")
    await quiet.pod("urgent", priorityClassName="high")
    async with running(quiet):
        for name, others in (("urgent", ("usual", "unimportant")), ("usual", ("unimportant",))):
            await quiet.until(functools.partial(quiet.node_of, name))
            for other in others:
                await quiet.until(functools.partial(quiet.waits, other))
            await quiet.client.delete(core.POD, name, NAMESPACE, grace_seconds=0)
        await quiet.until(lambda: quiet.node_of("unimportant"))


async def test_a_pod_that_backs_off_is_not_overtaken_by_a_lower_priority(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create(core.PRIORITY_CLASS, "high", value=1000)
    await world.node("n", memory="1Gi")
    await world.pod("first")
    await world.until(lambda: world.node_of("first"))
    await world.pod("urgent", priorityClassName="high")
    await world.until(lambda: world.waits("urgent"))
    monkeypatch.setattr(scheduling, "back_off", lambda tries: 600.0)
    await world.client.delete(core.POD, "first", NAMESPACE, grace_seconds=0)
    await world.pod("later")
    await world.until(lambda: world.node_of("urgent"))
    await world.until(lambda: world.waits("later"))


async def test_a_burst_of_pods_never_takes_more_than_there_is(world: World) -> None:
    for name in ("n1", "n2"):
        await world.node(name, pods="20")
    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(world.pod(f"p{number}", memory="1Mi"))

    def placed() -> list[str]:
        return [world.node_of(f"p{number}") for number in range(50)]

    await world.until(lambda: placed().count("") == 10)
    assert (placed().count("n1"), placed().count("n2")) == (20, 20)


# ---------------------------------------------------------------- all together


async def test_a_controller_that_is_added_shares_what_the_others_have(quiet: World) -> None:
    given: asyncio.Queue[embedded.Shared] = asyncio.Queue()

    async def another(shared: embedded.Shared) -> None:
        await shared.informers.of(core.POD).synced.wait()
        given.put_nowait(shared)

    run = embedded.run(quiet.client, quiet.store, now, kinds.REGISTRY, [another])
    controllers = asyncio.create_task(run)
    async with asyncio.timeout(60):
        shared = await given.get()
    assert shared.informers.of(core.POD) is shared.informers.of(core.POD)
    assert shared.informers.of(core.POD) is not shared.informers.of(core.NODE)
    controllers.cancel()
    with pytest.raises(asyncio.CancelledError):
        await controllers
