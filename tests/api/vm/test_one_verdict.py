"""Admission's warnings, the plan subresource and the VM controller give one verdict on an edit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from livevirt.errors import Conflict
from livevirt.kube.client.local import LocalClient
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.runtime import InformerReader, Informers
from livevirt.kube.objects import core
from livevirt.kube.objects.merge_patch import apply
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vm.live_update import LiveUpdate
from livevirt.vm.lifecycle.vm.volumes import VolumeUpdates
from livevirt.vm.lifecycle.vm.writer import VirtualMachineWriter
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.verdict.rollout_policy import ROLLOUT, WINDOW
from livevirt.vm.verdict.summary import RELABELLED, plan_document, warnings

from ..manifests import a_container, a_namespace, a_pod
from .edits import configure, edit, plan, template
from .vm_world import NAMESPACE, NODE, PlayedNode, World, now, register_node

Setup = Callable[[World], Awaitable[None]]

HOT = {"name": "data", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}
ROOT = {"name": "root", "containerDisk": {"image": "livevirt/guest:latest"}}
EDITS: dict[str, Object] = {
    "nothing": {},
    "more sockets": template(domain={"cpu": {"sockets": 2}}),
    "more memory": template(domain={"memory": {"guest": "1Gi"}}),
    "more of both": template(domain={"cpu": {"sockets": 3}, "memory": {"guest": "2Gi"}}),
    "more sockets than can be plugged": template(domain={"cpu": {"sockets": 9}}),
    "memory that is not aligned": template(domain={"memory": {"guest": "600M"}}),
    "more sockets, held back": template(domain={"cpu": {"sockets": 2}}, hostname="other"),
    "cores": template(domain={"cpu": {"cores": 2}}),
    "a place": template(nodeSelector={"disk": "ssd"}),
    "a place and a size": template(nodeSelector={"disk": "ssd"}, domain={"cpu": {"sockets": 2}}),
    "a hotplugged volume": template(volumes=[ROOT, HOT]),
    "a hotplugged volume and a size": template(
        volumes=[ROOT, HOT], domain={"memory": {"guest": "1Gi"}}
    ),
    "a label": {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}},
    "halted": {"spec": {"runStrategy": "Halted"}},
}


async def as_it_is(world: World) -> None:
    """Leave everything as it is."""


async def with_quota(world: World) -> None:
    """Use up the quota of the namespace."""
    [pod] = world.pods()
    used = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    spec = {"hard": {"requests.cpu": used, "limits.memory": "64Gi"}}
    team = {"apiVersion": "v1", "metadata": {"name": "team"}, "spec": spec}
    await world.owner.create(core.QUOTA, team, NAMESPACE)
    await world.until(lambda: (world.get(core.QUOTA, "team") or {}).get("status"))


async def with_limit_range(world: World) -> None:
    """Let no container have more than the guest's has."""
    limits = [{"type": "Container", "max": {"cpu": "150m", "memory": "1Gi"}}]
    sane = {"apiVersion": "v1", "metadata": {"name": "sane"}, "spec": {"limits": limits}}
    await world.owner.create(core.LIMIT_RANGE, sane, NAMESPACE)


async def with_full_node(world: World) -> None:
    """Leave no room on the node: a part is used by another pod."""
    allocatable = {"status": {"allocatable": {"cpu": "500m", "memory": "2Gi"}}}
    await world.components.patch(core.NODE, "node-1", "", allocatable, subresource="status")
    container = a_container(requests={"cpu": "350m", "memory": "1Gi"})
    busy = a_pod("busy", nodeName="node-1", containers=[container])
    await world.owner.create(core.NAMESPACE, a_namespace("elsewhere"))
    await world.owner.create(core.POD, busy, "elsewhere")


async def with_another_node(world: World) -> None:
    """Leave no room on the node, but let guests migrate to another that has some."""
    await with_full_node(world)
    await allow_migrations(world)
    await register_node(LocalClient(world.api, NODE), "node-2")


async def allow_migrations(world: World) -> None:
    strategy = {"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]}}}
    await world.owner.patch(kinds.KUBEVIRT, "kubevirt", "kubevirt", strategy)
    movable = [
        *(world.vmi()["status"].get("conditions") or []),
        {"type": "LiveMigratable", "status": "True"},
    ]
    patch = {"status": {"conditions": movable}}
    await world.components.patch(kinds.VMI, "web", NAMESPACE, patch)


async def without_in_place(world: World) -> None:
    """Let sizes change by migration only, without a second node."""
    await configure(world, developerConfiguration={"disabledFeatureGates": ["InPlaceHotplug"]})
    await allow_migrations(world)


async def staged(world: World) -> None:
    """Let every change wait for a restart."""
    await configure(world, vmRolloutStrategy="Stage")


async def staged_by_its_vm(world: World) -> None:
    """Let every change of the VM wait for a restart, under LiveUpdate."""
    await world.patch_vm({"metadata": {"annotations": {ROLLOUT: "Stage"}}})


async def between_windows(world: World) -> None:
    """Let every change wait for the maintenance window of the namespace."""
    start = now() + timedelta(hours=5)
    window = f"{start.minute} {start.hour} * * * 1h UTC"
    patch = {"metadata": {"annotations": {ROLLOUT: "Window", WINDOW: window}}}
    await world.owner.patch(core.NAMESPACE, NAMESPACE, "", patch)


async def without_record(world: World) -> None:
    """Lose the record of the guest's start."""
    name = world.vmi()["status"]["virtualMachineRevisionName"]
    await world.components.delete(core.REVISION, name, NAMESPACE)


STATES: dict[str, Setup] = {
    "room for all": as_it_is,
    "the quota is exhausted": with_quota,
    "a limit range": with_limit_range,
    "the node is full": with_full_node,
    "the node is full, another has room": with_another_node,
    "sizes change by migration": without_in_place,
    "the strategy is Stage": staged,
    "the VM's strategy is Stage": staged_by_its_vm,
    "the maintenance window is closed": between_windows,
}
#: What growing by a socket meets in each state, so that the states are what they say.
SOCKETS: dict[str, tuple[str, str, bool]] = {
    "room for all": ("LiveAfterResize", "PodResize", False),
    "the quota is exhausted": ("LiveAfterResize", "OverQuota", True),
    "a limit range": ("LiveAfterResize", "OverLimitRange", True),
    "the node is full": ("LiveAfterResize", "NodeFull", True),
    "the node is full, another has room": ("LiveAfterMigration", "NodeFull", False),
    "sizes change by migration": ("LiveAfterMigration", "InPlaceHotplugDisabled", True),
    "the strategy is Stage": ("Restart", "StageStrategy", False),
    "the VM's strategy is Stage": ("Restart", "StageStrategy", False),
    "the maintenance window is closed": ("LiveAfterResize", "MaintenanceWindow", True),
}


@contextlib.asynccontextmanager
async def a_controller(world: World) -> AsyncIterator[LiveUpdate]:
    """The part of the VM controller that judges, with informers that have caught up."""
    informers = Informers(world.components)
    reader = InformerReader(informers, kinds.VMI)
    volumes = VolumeUpdates(world.components, VirtualMachineWriter(world.components))

    async def follow() -> None:
        async with asyncio.TaskGroup() as group:
            informers.start(group)

    following = asyncio.create_task(follow())
    await reader.wait_synced()
    yield LiveUpdate(world.components, now, cast(Recorder, None), reader, volumes)
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following


async def by_controller(live: LiveUpdate, world: World, patch: Object) -> Judgement:
    """Return what the controller would judge once the edit were made."""
    vm: Object = apply(patch, world.vm())
    vm["metadata"] = vm["metadata"] | {"generation": vm["metadata"]["generation"] + 1}
    return await live.judge(vm, world.vmi())


@pytest.fixture
async def guest(world: World, node: PlayedNode) -> World:
    await world.create_vm()
    await world.until(world.ready)
    return world


@pytest.mark.parametrize("state", STATES)
async def test_all_three_give_the_same_verdict(guest: World, state: str) -> None:
    await STATES[state](guest)
    async with a_controller(guest) as live:
        for name, patch in EDITS.items():
            planned = await plan(guest, patch)
            admitted = await edit(guest, patch, dry_run=True)
            judged = await by_controller(live, guest, patch)

            document = plan_document(judged, "web", {}, NAMESPACE)
            told = warnings(judged, "web", NAMESPACE)
            staged_label = name == "a label" and "Stage" in state
            relabelled = [RELABELLED] if staged_label else []
            assert document["changes"] == planned["changes"], name
            assert (judged.verdict, judged.waits) == (planned["verdict"], planned["waits"]), name
            assert planned["warnings"] == [*told, *relabelled], name
            assert list(admitted) == [*told, *relabelled], name
            if name == "more sockets":
                [change] = judged.changes
                assert (change.verdict, change.reason, change.waits) == SOCKETS[state]


async def test_none_of_them_judges_without_the_record_of_the_start(guest: World) -> None:
    patch: dict[str, Any] = EDITS["more sockets"]
    await without_record(guest)
    async with a_controller(guest) as live:
        judged = await by_controller(live, guest, patch)
    assert judged.unknown
    assert list(await edit(guest, patch, dry_run=True)) == [judged.unknown]
    with pytest.raises(Conflict, match="a restart makes a new one"):
        await plan(guest, patch)
