"""Migrations on a real server with its scheduler, quotas and collector; the nodes are played."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from livevirt.errors import Conflict, Invalid, NotFound
from livevirt.kube.client.local import LocalClient
from livevirt.kube.controllers import embedded
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.request import Object
from livevirt.vm import controllers, kinds
from livevirt.vm.config import controller

from ..manifests import a_quota
from .vm_world import NAMESPACE, NODE, World, now, register_node

JOB = "kubevirt.io/migrationJobUID"
ENDED = "2030-01-01T00:00:00Z"


class PlayedNodes:
    """Nodes whose guests are only told of. A migration goes on as far as it is let."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._client = LocalClient(world.api, NODE)
        self.until = "completed"  # the last thing that is done for a migration

    async def register(self, *names: str) -> None:
        for name in names:
            await register_node(self._client, name, {"kubernetes.io/hostname": name})

    async def run(self) -> None:
        watch = self._world.store.watch(None, since=self._world.store.revision)
        try:
            await self._look()
            async for _ in watch:
                await self._look()
        finally:
            watch.close()

    async def finish(self) -> None:
        """Let migrations go to their end; nothing else might wake us to do so."""
        self.until = "completed"
        await self._look()

    async def _look(self) -> None:
        for pod in self._world.pods():
            with contextlib.suppress(NotFound, Conflict):
                await self._pod(pod)
        for each in self._world.read.list(kinds.VMI, NAMESPACE):
            with contextlib.suppress(NotFound, Conflict):
                await self._guest(each)

    async def _pod(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        if not pod["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in pod["metadata"]:
            uid = pod["metadata"]["uid"]
            vmi = self._world.vmi(pod["metadata"]["ownerReferences"][0]["name"])
            if vmi and vmi["status"].get("nodeName") == pod["spec"]["nodeName"]:
                ended = {"status": {"phase": "Succeeded"}}
                await self._client.patch(kinds.VMI, vmi["metadata"]["name"], NAMESPACE, ended)
            await self._client.delete(core.POD, name, NAMESPACE, uid=uid, grace_seconds=0)
        elif pod["status"]["phase"] == "Pending":
            await self._set_pod(name, "Running")

    async def _set_pod(self, name: str, phase: str) -> None:
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        status = {"phase": phase, "conditions": [ready]}
        await self._client.patch(
            core.POD, name, NAMESPACE, {"status": status}, subresource="status"
        )

    async def _guest(self, vmi: Object) -> None:
        meta, status = vmi["metadata"], vmi["status"]
        change: Object = {}
        state = status.get("migrationState") or {}
        if status["phase"] == "Scheduled":
            change = {"phase": "Running"}
        elif state and not state.get("endTimestamp"):
            change = await self._move(state)
        if change:
            read = {"resourceVersion": meta["resourceVersion"]}
            patch = {"metadata": read, "status": change}
            await self._client.patch(kinds.VMI, meta["name"], NAMESPACE, patch)

    async def _move(self, state: Object) -> Object:
        if state.get("abortRequested"):
            await self._set_pod(state["targetPod"], "Failed")
            ended = {"failed": True, "failureReason": "aborted", "endTimestamp": ENDED}
            return {"migrationState": {**ended, "abortStatus": "Succeeded"}}
        for done, field in (("prepared", "targetNodeAddress"), ("started", "startTimestamp")):
            if not state.get(field):
                value = "unix:here" if done == "prepared" else ENDED
                return {"migrationState": {field: value}}
            if self.until == done:
                return {}
        moved = {"completed": True, "endTimestamp": ENDED}
        return {"nodeName": state["targetNode"], "migrationState": moved}


@pytest.fixture
async def nodes(quiet: World) -> AsyncIterator[PlayedNodes]:
    """The controllers at work, and two nodes."""
    extra = (
        controllers.virtual_machines,
        controllers.instances,
        controller.run,
        controllers.migrations,
    )
    played = PlayedNodes(quiet)
    await played.register("node-1", "node-2")
    tasks = [
        asyncio.create_task(
            embedded.run(quiet.components, quiet.store, now, kinds.REGISTRY, extra)
        ),
        asyncio.create_task(played.run()),
    ]
    yield played
    assert not any(task.done() for task in tasks), "nothing may end by itself"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def a_migration(name: str = "move", vmi: str = "web", **spec: Any) -> Object:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name},
        "spec": {"vmiName": vmi, **spec},
    }


async def migrate(world: World, name: str = "move", vmi: str = "web", **spec: Any) -> None:
    await world.owner.create(kinds.MIGRATION, a_migration(name, vmi, **spec), NAMESPACE)


def status(world: World, name: str = "move") -> Object:
    return (world.get(kinds.MIGRATION, name) or {}).get("status") or {}


def in_phase(world: World, phase: str, name: str = "move") -> Callable[[], bool]:
    return lambda: status(world, name).get("phase") == phase


def targets(world: World) -> list[Object]:
    return [pod for pod in world.pods() if JOB in pod["metadata"]["labels"]]


def node_of(world: World, name: str = "web") -> str:
    return str((world.vmi(name).get("status") or {}).get("nodeName") or "")


def runs(world: World, name: str = "web") -> Callable[[], bool]:
    return lambda: (world.vmi(name).get("status") or {}).get("phase") == "Running"


async def started(world: World, *names: str) -> None:
    for name in names:
        await world.create_vm(name=name)
    for name in names:
        await world.until(runs(world, name))


async def test_a_guest_moves_to_the_other_node_and_leaves_one_pod(
    quiet: World, nodes: PlayedNodes
) -> None:
    world = quiet
    await started(world, "web")
    before = node_of(world)
    await migrate(world)
    await world.until(in_phase(world, "Succeeded"))
    await world.until(lambda: len(world.pods()) == 1)
    assert node_of(world) not in ("", before)
    listed = {world.pods()[0]["metadata"]["uid"]: node_of(world)}
    await world.until(lambda: world.vmi()["status"]["activePods"] == listed)
    assert world.pods()[0]["spec"]["nodeName"] == node_of(world)
    assert status(world)["migrationState"]["sourceNode"] == before
    await world.until(
        lambda: not (world.get(kinds.MIGRATION, "move") or {})["metadata"].get("finalizers")
    )
    assert world.vmi()["status"]["phase"] == "Running"
    labels = world.vmi()["metadata"].get("labels") or {}
    assert "kubevirt.io/migrationTargetNodeName" not in labels
    await migrate(world, "back")
    await world.until(in_phase(world, "Succeeded", "back"))
    assert node_of(world) == before


async def test_given_a_cancel_on_the_way_then_the_guest_stays(
    quiet: World, nodes: PlayedNodes
) -> None:
    world, nodes.until = quiet, "started"
    await started(world, "web")
    before = node_of(world)
    await migrate(world)
    await world.until(in_phase(world, "Running"))
    await world.owner.delete(kinds.MIGRATION, "move", NAMESPACE)
    await world.until(lambda: world.get(kinds.MIGRATION, "move") is None)
    assert node_of(world) == before
    assert world.vmi()["status"]["migrationState"]["abortStatus"] == "Succeeded"
    await world.until(lambda: all(pod["status"]["phase"] == "Failed" for pod in targets(world)))
    await nodes.finish()
    await migrate(world)  # the next one may come
    await world.until(in_phase(world, "Succeeded"))


async def test_given_a_target_that_fits_nowhere_then_a_cancel_leaves_nothing(
    quiet: World, nodes: PlayedNodes
) -> None:
    world = quiet
    await started(world, "web")
    await migrate(world, addedNodeSelector={"disk": "none"})
    await world.until(in_phase(world, "Scheduling"))
    with pytest.raises(Invalid, match=r"in-flight migration detected\. Active migration job"):
        await migrate(world, "second")
    await world.owner.delete(kinds.MIGRATION, "move", NAMESPACE)
    await world.until(lambda: world.get(kinds.MIGRATION, "move") is None)
    await world.until(lambda: not targets(world))
    assert "migrationState" not in world.vmi()["status"]


async def test_given_a_full_quota_then_the_migration_waits_for_room(
    quiet: World, nodes: PlayedNodes
) -> None:
    world = quiet
    await started(world, "web")
    await world.owner.create(core.QUOTA, a_quota("one", pods="1"), NAMESPACE)
    await world.until(
        lambda: ((world.get(core.QUOTA, "one") or {}).get("status") or {}).get("used")
    )
    await migrate(world)
    await world.until(
        lambda: conditions.is_true(
            status(world).get("conditions"), "migrationRejectedByResourceQuota"
        )
    )
    assert status(world)["phase"] == "Pending"
    more = {"spec": {"hard": {"pods": "2"}}}
    await world.owner.patch(core.QUOTA, "one", NAMESPACE, more)
    await world.until(in_phase(world, "Succeeded"))


async def test_given_a_limit_of_one_then_migrations_go_one_after_the_other(
    quiet: World, nodes: PlayedNodes
) -> None:
    world, nodes.until = quiet, "started"
    limits = {"spec": {"configuration": {"migrations": {"parallelMigrationsPerCluster": 1}}}}
    await world.owner.patch(kinds.KUBEVIRT, "kubevirt", "kubevirt", limits)
    await started(world, "web", "two")
    await migrate(world)
    await world.until(in_phase(world, "Running"))
    await migrate(world, "other", "two")
    await world.until(in_phase(world, "Pending", "other"))
    assert len(targets(world)) == 1
    await nodes.finish()
    await world.until(in_phase(world, "Succeeded", "other"))
    assert status(world)["phase"] == "Succeeded"


async def test_given_a_vm_that_stops_then_its_migration_fails_and_nothing_is_left(
    quiet: World, nodes: PlayedNodes
) -> None:
    world = quiet
    await started(world, "web")
    await migrate(world, addedNodeSelector={"disk": "none"})
    await world.until(in_phase(world, "Scheduling"))
    await world.patch_vm({"spec": {"runStrategy": "Halted"}})
    await world.until(in_phase(world, "Failed"))
    await world.until(lambda: not world.vmi() and not world.pods())


async def test_given_an_unknown_instance_then_the_migration_is_refused(quiet: World) -> None:
    with pytest.raises(Invalid, match='the VMI "default/web" does not exist') as refused:
        await migrate(quiet)
    assert refused.value.details["causes"][0]["field"] == "spec.vmiName"
