"""Guests that need another pod, and guests that must leave their node, on nodes that are played."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from livevirt.errors import Conflict, TooManyRequests
from livevirt.kube.client.interface import Patch
from livevirt.kube.client.local import LocalClient
from livevirt.kube.controllers import embedded
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.request import Object
from livevirt.vm import controllers, kinds
from livevirt.vm.config import controller
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.sizing import hot_change
from livevirt.vm.spec.resources import Namespace

from ..manifests import a_quota, a_vmi
from .edits import configure, plan, template
from .served import serving
from .vm_world import NAMESPACE, NODE, PlayedNode, World, now, register_node

BIGGER = template(domain={"cpu": {"sockets": 2}})
SMALLER = template(domain={"cpu": {"sockets": 1}})
CLOSED = {"developerConfiguration": {"disabledFeatureGates": ["InPlaceHotplug"]}}
_EMPTY = {"machine": {"type": "q35"}, "devices": {}, "memory": {"guest": "64Mi"}}


@pytest.fixture
async def world(quiet: World) -> AsyncIterator[World]:
    """A server with every controller but the one that carries migrations out."""
    extra = (
        controllers.virtual_machines,
        controllers.instances,
        controller.run,
        controllers.workload_updates,
        controllers.evacuations,
    )
    task = asyncio.create_task(
        embedded.run(quiet.components, quiet.store, now, kinds.REGISTRY, extra)
    )
    yield quiet
    assert not task.done(), "the controllers must never end by themselves"
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def a_node(world: World, name: str, cpu: str = "8") -> None:
    """Register another node, on which nothing ever runs."""
    await register_node(LocalClient(world.api, NODE), name, cpu=cpu)


async def allow(world: World, *methods: str, **settings: Any) -> None:
    spec = {"workloadUpdateStrategy": {"workloadUpdateMethods": [*methods]}}
    patch = {"spec": {**spec, "configuration": settings}}
    await world.owner.patch(kinds.KUBEVIRT, "kubevirt", "kubevirt", patch)


async def tell(world: World, change: Callable[[Object], Object], name: str = "web") -> None:
    """Change the status of an instance as its node does."""
    client = LocalClient(world.api, NODE)
    async with asyncio.timeout(20):
        while True:
            found = world.vmi(name)
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            patch = {"metadata": version, "status": change(found.get("status") or {})}
            with contextlib.suppress(Conflict):  # the controllers write it too
                await client.patch(kinds.VMI, name, NAMESPACE, patch)
                return


def with_condition(type_: str, status: str = "True", **words: str) -> Callable[[Object], Object]:
    wanted = {"type": type_, "status": status, **words}
    return lambda told: {"conditions": conditions.with_condition(told["conditions"], wanted, now())}


def settled(told: Object) -> Object:
    """Return the status of an instance whose guest and pod have the size it asks for."""
    listed = conditions.without_condition(told["conditions"], "HotVCPUChange")
    return {"conditions": listed, "observedSizeRevision": told.get("sizeRevision")}


def change(world: World) -> Object:
    """Return the condition of the change of CPUs, as the VM shows it."""
    return conditions.find(hot_change.reported(world.vmi()), "HotVCPUChange") or {}


def reason(world: World) -> str:
    return str(change(world).get("reason", ""))


def migrations(world: World) -> list[Object]:
    return [
        each
        for each in world.read.list(kinds.MIGRATION, NAMESPACE)
        if "deletionTimestamp" not in each["metadata"]
    ]


def told_to_stay(world: World) -> str:
    """Return why guests do not migrate, as their owners are told."""
    listed = world.read.list(core.EVENT, NAMESPACE)
    return "\n".join(event["message"] for event in listed if event["reason"] == "NoMigration")


def outdated(world: World) -> int:
    found = world.read.get(kinds.KUBEVIRT, "kubevirt", "kubevirt") or {}
    return int((found.get("status") or {}).get("outdatedVirtualMachineInstanceWorkloads", 0))


@pytest.fixture
async def guest(world: World, node: PlayedNode) -> World:
    """A VM whose guest runs on node-1 and could migrate; node-2 is there as well."""
    await world.create_vm()
    await world.until(world.ready)
    await a_node(world, "node-2")
    await tell(world, with_condition("LiveMigratable"))
    return world


# ---------------------------------------------------------------- the workload updater


async def test_given_the_gate_closed_when_a_vm_grows_then_a_migration_is_asked_for_at_once(
    guest: World,
) -> None:
    await allow(guest, "LiveMigrate", **CLOSED)
    [pod] = guest.pods()
    said = await plan(guest, BIGGER)
    assert (said["verdict"], said["waits"]) == ("LiveAfterMigration", False)

    await guest.patch_vm(BIGGER)
    await guest.until(lambda: migrations(guest))

    [made] = migrations(guest)
    assert made["metadata"]["name"].startswith("kubevirt-workload-update-")
    assert made["metadata"]["annotations"] == {"kubevirt.io/workloadUpdateMigration": ""}
    assert made["spec"] == {"vmiName": "web", "priority": "user-triggered"}
    assert reason(guest) == "WaitingForMigration"
    await guest.until(lambda: outdated(guest) == 1)
    [same] = guest.pods()
    assert same["spec"] == pod["spec"]  # nothing was resized


async def seconds_until_asked(guest: World) -> float:
    """Grow the VM; return how long its change can be seen before the migration can."""
    watch = guest.store.watch(None, since=guest.store.revision)
    shown: float | None = None
    try:
        await guest.patch_vm(BIGGER)
        async with asyncio.timeout(60):
            while True:
                await anext(watch)
                if shown is None and reason(guest):
                    shown = asyncio.get_running_loop().time()
                if migrations(guest):
                    assert shown is not None, "the migration of a change that nobody can see"
                    return asyncio.get_running_loop().time() - shown
    finally:
        watch.close()


async def test_the_migration_is_there_a_moment_after_the_condition(guest: World) -> None:
    await allow(guest, "LiveMigrate", **CLOSED)
    seconds = []
    for _ in range(3):  # a busy machine is not to blame for: the best one counts
        seconds.append(await seconds_until_asked(guest))
        await guest.patch_vm(SMALLER)
        await guest.until(lambda: guest.vmi()["spec"]["domain"]["cpu"]["sockets"] == 1)
        await tell(guest, settled)  # as its node finds out
        await guest.until(lambda: not migrations(guest))
        [called_off] = guest.read.list(kinds.MIGRATION, NAMESPACE)
        await guest.components.patch(  # as who carries migrations out does
            kinds.MIGRATION, called_off["metadata"]["name"], NAMESPACE,
            {"metadata": {"finalizers": None}},
        )  # fmt: skip
    # A script that waits for the condition and then lists migrations must find it.
    assert min(seconds) < 0.1, seconds


async def test_when_the_vm_is_set_back_then_its_migration_is_called_off(guest: World) -> None:
    await allow(guest, "LiveMigrate", **CLOSED)
    await guest.patch_vm(BIGGER)
    await guest.until(lambda: migrations(guest))
    await guest.patch_vm(SMALLER)
    await guest.until(lambda: guest.vmi()["spec"]["domain"]["cpu"]["sockets"] == 1)
    await tell(guest, settled)  # as its node finds out
    await guest.until(lambda: not migrations(guest))
    await guest.until(lambda: outdated(guest) == 0)


async def test_given_no_method_then_the_change_waits_and_says_why_until_it_is_allowed(
    guest: World,
) -> None:
    await configure(guest, **CLOSED)
    said = await plan(guest, BIGGER)
    assert (said["verdict"], said["waits"]) == ("LiveAfterMigration", True)
    await guest.patch_vm(BIGGER)
    await guest.until(lambda: reason(guest) == "WaitingForMigration")
    assert not migrations(guest)

    await allow(guest, "LiveMigrate", **CLOSED)
    await guest.until(lambda: migrations(guest))


async def test_given_the_gate_opened_again_then_a_change_that_waits_goes_in_place(
    guest: World,
) -> None:
    await configure(guest, **CLOSED)
    await guest.patch_vm(BIGGER)
    await guest.until(lambda: reason(guest) == "WaitingForMigration")
    await configure(guest, developerConfiguration={"disabledFeatureGates": []})
    await guest.until(lambda: reason(guest) == "WaitingForResize")
    [pod] = guest.pods()
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "200m"


async def test_given_a_full_node_then_a_guest_goes_to_one_with_room_and_else_stays(
    guest: World,
) -> None:
    await allow(guest, "LiveMigrate")
    await guest.patch_vm(BIGGER)
    await guest.until(lambda: reason(guest) == "WaitingForResize")
    client = LocalClient(guest.api, NODE)
    taken = {"status": {"allocatable": {"cpu": "100m"}}}
    await client.patch(core.NODE, "node-2", "", taken, subresource="status")
    words = {"reason": "Deferred", "message": "Node didn't have enough resource: cpu"}
    await tell(guest, with_condition("HotVCPUChange", **words))

    await guest.until(lambda: told_to_stay(guest))
    assert not migrations(guest)
    taken["status"]["allocatable"]["cpu"] = "8"
    await client.patch(core.NODE, "node-2", "", taken, subresource="status")
    await guest.until(lambda: migrations(guest))


async def test_given_a_node_that_is_too_small_then_a_guest_leaves_for_a_larger_one(
    guest: World,
) -> None:
    await allow(guest, "LiveMigrate")
    client = LocalClient(guest.api, NODE)
    small = {"status": {"allocatable": {"cpu": "150m"}}}
    for name in ("node-1", "node-2"):
        await client.patch(core.NODE, name, "", small, subresource="status")
    await guest.patch_vm(BIGGER)
    await guest.until(lambda: reason(guest) == "Infeasible")
    await guest.until(lambda: told_to_stay(guest))
    assert not migrations(guest)
    await a_node(guest, "node-3")
    await guest.until(lambda: migrations(guest))
    assert migrations(guest)[0]["spec"] == {"vmiName": "web", "priority": "user-triggered"}


@pytest.mark.wording
async def test_given_no_node_with_room_then_an_event_names_what_each_lacks(guest: World) -> None:
    await allow(guest, "LiveMigrate")
    small = {"status": {"allocatable": {"cpu": "150m"}}}
    for name in ("node-1", "node-2"):
        await LocalClient(guest.api, NODE).patch(core.NODE, name, "", small, subresource="status")
    await guest.patch_vm(BIGGER)
    await guest.until(lambda: "Node node-2 is missing" in told_to_stay(guest))


@pytest.mark.wording
async def test_given_no_method_then_the_change_names_the_setting(guest: World) -> None:
    await configure(guest, **CLOSED)
    await guest.patch_vm(BIGGER)
    await guest.until(lambda: reason(guest) == "WaitingForMigration")
    assert "does not list LiveMigrate in workloadUpdateMethods" in change(guest)["message"]


async def test_given_a_quota_for_the_difference_only_then_a_full_node_is_not_left(
    guest: World,
) -> None:
    await allow(guest, "LiveMigrate")
    team = a_quota("team", **{"requests.cpu": "350m"})
    await guest.owner.create(core.QUOTA, team, NAMESPACE)
    await guest.until(lambda: guest.read.list(core.QUOTA, NAMESPACE)[0].get("status"))
    await guest.patch_vm(BIGGER)
    await guest.until(lambda: reason(guest) == "WaitingForResize")
    words = {"reason": "Deferred", "message": "Node didn't have enough resource: cpu"}
    await tell(guest, with_condition("HotVCPUChange", **words))

    await guest.until(lambda: told_to_stay(guest))
    assert not migrations(guest)


async def test_given_a_guest_that_moves_then_its_pod_is_not_resized(guest: World) -> None:
    await allow(guest, "LiveMigrate", **CLOSED)
    await guest.patch_vm(BIGGER)
    await guest.until(lambda: reason(guest) == "WaitingForMigration")
    before = change(guest)["message"]
    state = {"migrationUid": "m", "targetNode": "node-2"}
    await tell(guest, lambda _: {"migrationState": state})
    await configure(guest, developerConfiguration={"disabledFeatureGates": []})
    await guest.until(lambda: change(guest)["message"] != before)  # it names the node
    [pod] = guest.pods()
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "100m"


async def test_given_pods_of_another_version_then_guests_are_evicted_only_if_that_is_allowed(
    world: World, node: PlayedNode
) -> None:
    pod = await an_instance(world, "None")
    name = pod["metadata"]["name"]
    image = {"name": "compute", "image": "livevirt/launcher:0.0.1"}
    patch = Patch("strategic", {"spec": {"containers": [image]}})
    await world.components.patch(core.POD, name, NAMESPACE, patch)
    await world.until(lambda: outdated(world) == 1)
    assert world.pods()
    await allow(world, "Evict")
    await world.until(lambda: not world.pods())
    await world.until(lambda: outdated(world) == 0)


# ---------------------------------------------------------------- eviction and evacuation


async def an_instance(world: World, strategy: str, name: str = "web") -> Object:
    """Return the pod of an instance without a VM, which runs and could migrate."""
    spec = {"domain": _EMPTY, "evictionStrategy": strategy}
    await world.owner.create(kinds.VMI, a_vmi(name, spec), NAMESPACE)
    await world.until(lambda: (world.vmi(name).get("status") or {}).get("phase") == "Running")
    await tell(world, with_condition("LiveMigratable"), name)
    [pod] = [each for each in world.pods() if name in each["metadata"]["name"]]
    return pod


async def evict(world: World, pod: Object, *, dry_run: bool = False) -> None:
    name = pod["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    await world.owner.create(
        core.POD, body, NAMESPACE, name=name, subresource="eviction", dry_run=dry_run
    )


def mark(world: World, name: str = "web") -> str:
    return str((world.vmi(name).get("status") or {}).get("evacuationNodeName") or "")


async def test_a_guest_that_is_evicted_moves_and_is_marked_until_it_has(
    world: World, node: PlayedNode
) -> None:
    pod = await an_instance(world, "LiveMigrate")
    generation = world.vmi()["metadata"]["generation"]
    with pytest.raises(TooManyRequests, match="triggered evacuation"):
        await evict(world, pod, dry_run=True)
    assert mark(world) == ""
    assert world.vmi()["metadata"]["generation"] == generation

    for _ in range(2):  # who drains a node keeps trying
        with pytest.raises(TooManyRequests, match="triggered evacuation"):
            await evict(world, pod)
    assert mark(world) == "node-1"
    await world.until(lambda: migrations(world))
    [made] = migrations(world)
    assert made["metadata"]["name"].startswith("kubevirt-evacuation-")
    assert made["metadata"]["annotations"] == {"kubevirt.io/evacuationMigration": "node-1"}
    assert made["spec"]["priority"] == "system-critical"

    await tell(world, lambda _: {"nodeName": "node-2"})
    await world.until(lambda: mark(world) == "")


async def test_a_guest_without_a_strategy_is_evicted_with_its_pod(
    world: World, node: PlayedNode
) -> None:
    pod = await an_instance(world, "None")
    await evict(world, pod)
    await world.until(lambda: not world.pods())
    assert mark(world) == ""


async def two_of_three_leave(world: World) -> tuple[str, ...]:
    """Taint the node of three guests, of which two may migrate at a time; return their names."""
    names = ("web-1", "web-2", "web-3")
    for name in names:
        await an_instance(world, "LiveMigrate", name)
    taint = {"key": "kubevirt.io/drain", "effect": "NoSchedule"}
    await world.owner.patch(core.NODE, "node-1", "", {"spec": {"taints": [taint]}})
    await world.until(lambda: len(migrations(world)) == 2)
    return names


async def test_given_the_drain_taint_then_guests_leave_as_many_as_may(
    world: World, node: PlayedNode
) -> None:
    names = await two_of_three_leave(world)
    first = migrations(world)[0]
    gone = first["spec"]["vmiName"]
    await tell(world, lambda _: {"nodeName": "node-2"}, gone)
    patch = {"status": {"phase": "Succeeded"}}
    await world.components.patch(
        kinds.MIGRATION, first["metadata"]["name"], NAMESPACE, patch, subresource="status"
    )
    await world.until(lambda: len(migrations(world)) == 3)
    assert {each["spec"]["vmiName"] for each in migrations(world)} == {*names}


async def test_given_migrations_that_only_wait_then_other_guests_leave_all_the_same(
    world: World, node: PlayedNode
) -> None:
    names = await two_of_three_leave(world)
    patch = {"status": {"phase": "Pending"}}  # as long as a quota has no room, say
    for each in migrations(world):
        await world.components.patch(
            kinds.MIGRATION, each["metadata"]["name"], NAMESPACE, patch, subresource="status"
        )
    await world.until(lambda: len(migrations(world)) == 3)
    assert {each["spec"]["vmiName"] for each in migrations(world)} == {*names}


async def test_kubectl_drains_a_node_by_moving_its_guests(
    world: World, node: PlayedNode, tmp_path: Path
) -> None:
    pod = await an_instance(world, "LiveMigrate")
    await a_node(world, "node-2")
    selector, force = "--pod-selector=kubevirt.io=virt-launcher", "--force"
    async with serving(world, tmp_path) as served:
        drain = await served.start(
            "kubectl", "drain", "node-1", selector, "--delete-emptydir-data", force
        )
        try:
            await world.until(lambda: migrations(world))
            await arrive(world, "node-2", pod)
            async with asyncio.timeout(60):
                out, err = await drain.communicate()
        finally:
            if drain.returncode is None:
                drain.kill()
            await drain.wait()
    assert drain.returncode == 0, (out, err)
    assert b"triggered evacuation" in err
    assert b"node/node-1 drained" in out
    found = world.read.get(core.NODE, "node-1") or {}
    assert found["spec"]["unschedulable"] is True
    await world.until(lambda: mark(world) == "")


async def arrive(world: World, target: str, source: Object) -> None:
    """Bring the guest to another node, as a migration does."""
    meta = {"name": "target", "uid": None, "resourceVersion": None}
    pod = launcher.pod_of(world.vmi(), Namespace())
    pod["metadata"] |= {k: v for k, v in meta.items() if v}
    pod["spec"]["nodeName"] = target
    await world.components.create(core.POD, pod, NAMESPACE)
    await tell(world, lambda _: {"nodeName": target})
    name, uid = source["metadata"]["name"], source["metadata"]["uid"]
    await world.components.delete(core.POD, name, NAMESPACE, uid=uid, grace_seconds=0)
