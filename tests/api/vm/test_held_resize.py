"""A guest that may not grow: controller and node say why in one voice, and then are silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from livevirt.errors import Conflict, NotFound
from livevirt.kube.client.local import LocalClient
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.quantity import ZERO, parse
from livevirt.kube.objects.request import Object
from livevirt.node import resize, sizing
from livevirt.node.pod_status import RESIZE_PENDING
from livevirt.node.sizing import IDLE
from livevirt.qemu.machine import Cpu, Machine, Memory, Thread
from livevirt.qemu.observe import CpuSlot, MemoryState, Observed
from livevirt.qemu.plan import MachineSnapshot
from livevirt.vm import kinds

from ..manifests import a_quota
from .edits import template
from .vm_world import NAMESPACE, NODE, PlayedNode, World, now

BOOT = 256 * 2**20
QUIET_SECONDS = 5
FEW = 10  # writes of instances in that time
MACHINE = Machine(
    name="a",
    uuid="00000000-0000-0000-0000-000000000001",
    accelerator="tcg",
    cpu=Cpu(model="max", max_sockets=4),
    memory=Memory(boot=BOOT, max=4 * BOOT),
    run_dir="/run/1",
    serial_log="/log",
)
AS_STARTED = MachineSnapshot(
    MACHINE,
    Observed(
        "running",
        tuple(CpuSlot(Thread(n, 0, 0), "max-x86_64-cpu", n < 1) for n in range(4)),
        MemoryState(BOOT, 0, 0),
    ),
)
TOLD = {
    "currentCPUTopology": {"sockets": 1, "cores": 1, "threads": 1},
    "memory": {"guestAtBoot": "256Mi", "guestCurrent": "256Mi", "guestRequested": "256Mi"},
}


class Kubelet:
    """Judges resizes and tells of changes by the node's own rules; guests stay as they started."""

    def __init__(self, world: World, memory: str) -> None:
        self._world, self._client = world, LocalClient(world.api, NODE)
        self.room = {"cpu": parse("8"), "memory": parse(memory)}

    async def run(self) -> None:
        watch = self._world.store.watch(None, since=self._world.store.revision)
        try:
            while True:
                for pod in self._world.pods():
                    with contextlib.suppress(Conflict, NotFound):  # the next change wakes us again
                        await self._judge(pod)
                        await self._tell(pod)
                await anext(watch)
        finally:
            watch.close()

    async def _judge(self, pod: Object) -> None:
        if pod["status"]["phase"] != "Running":
            return
        asked, in_force = resize.desired(pod), resize.in_force(pod)
        own = pod["metadata"]["uid"]
        others = [each for each in self._world.pods() if each["metadata"]["uid"] != own]
        taken = {
            name: sum((resize.amounts(_granted(each)).get(name, ZERO) for each in others), ZERO)
            for name in ("cpu", "memory")
        }
        found = conditions.without_condition(pod["status"]["conditions"], RESIZE_PENDING) or []
        decision = resize.decide(resize.asked(pod), taken, self.room)
        if in_force is not None and isinstance(decision, resize.Refused):
            waits = {"type": RESIZE_PENDING, "status": "True", "reason": decision.reason}
            found = [*found, {**waits, "message": decision.message}]
            asked = in_force
        container = {"name": "compute", "resources": asked}
        container["allocatedResources"] = asked["requests"]
        status = {"conditions": found, "containerStatuses": [container]}
        if any(pod["status"].get(name) != value for name, value in status.items()):
            await self._write(core.POD, pod, status, "status")

    async def _tell(self, pod: Object) -> None:
        vmi = self._world.vmi(pod["metadata"]["ownerReferences"][0]["name"])
        told = vmi.get("status") or {}
        if told.get("phase") != "Running":
            return
        listed, observed = sizing.size_status(vmi, pod, AS_STARTED, IDLE, now())
        status = {**TOLD, "conditions": listed, "observedSizeRevision": observed}
        if any(told.get(name) != value for name, value in status.items()):
            await self._write(kinds.VMI, vmi, status)

    async def _write(self, kind: Any, obj: Object, status: Object, subresource: str = "") -> None:
        meta = obj["metadata"]
        patch = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status}
        await self._client.patch(kind, meta["name"], NAMESPACE, patch, subresource=subresource)


def _granted(pod: Object) -> Object:
    found: Object = resize.container_status(pod).get("allocatedResources") or {}
    return found


@pytest.fixture
async def kubelet(world: World, node: PlayedNode) -> AsyncIterator[Kubelet]:
    """Two guests of 256Mi on a node that has room for no third, under a quota that has a little."""
    await quota(world, "1700Mi")
    for name in ("a", "b"):
        domain = {"devices": {}, "memory": {"guest": "256Mi"}}
        await world.create_vm(name=name, template={"spec": {"domain": domain, "volumes": ROOT}})
        await world.until(lambda: world.ready(name))  # noqa: B023
    played = Kubelet(world, "1450Mi")
    task = asyncio.create_task(played.run())
    await world.until(lambda: all(_granted(pod) for pod in world.pods()))
    yield played
    assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


ROOT = [{"name": "root", "containerDisk": {"image": "livevirt/guest:latest"}}]


async def quota(world: World, memory: str) -> None:
    """Make a quota, or change it."""
    team = a_quota("team", **{"requests.memory": memory})
    if world.get(core.QUOTA, "team") is not None:
        await world.owner.patch(core.QUOTA, "team", NAMESPACE, {"spec": team["spec"]})
        return
    await world.owner.create(core.QUOTA, team, NAMESPACE)

    def counted() -> Any:
        found = world.get(core.QUOTA, "team") or {}
        return (found.get("status") or {}).get("used")

    await world.until(counted)


async def grow(world: World, memory: str, reason: str) -> None:
    await world.patch_vm(template(domain={"memory": {"guest": memory}}), "a")
    await world.until(lambda: stands(world) == reason)


def stands(world: World) -> str:
    listed = (world.vmi("a").get("status") or {}).get("conditions")
    return str((conditions.find(listed, "HotMemoryChange") or {}).get("reason", ""))


async def writes(world: World) -> int:
    """Count the writes of instances within the next seconds."""
    found = 0
    watch = world.store.watch(None, since=world.store.revision)
    try:
        async with asyncio.timeout(QUIET_SECONDS):
            while True:
                events = await anext(watch)
                found += sum(event.key.resource == kinds.VMI.resource for event in events)
    except TimeoutError:
        return found
    finally:
        watch.close()


async def test_given_a_growth_waits_for_the_node_when_more_is_over_quota_then_that_is_said_once(
    world: World, kubelet: Kubelet
) -> None:
    await grow(world, "512Mi", "Deferred")
    await grow(world, "1Gi", "OverQuota")

    assert await writes(world) <= FEW
    assert stands(world) == "OverQuota"

    await quota(world, "4Gi")
    await world.until(lambda: stands(world) == "Deferred")
    await grow(world, "256Mi", "")


@pytest.mark.long
async def test_given_a_growth_waits_for_the_node_when_that_shrinks_then_that_is_said_once(
    world: World, kubelet: Kubelet
) -> None:
    await grow(world, "512Mi", "Deferred")
    kubelet.room["memory"] = parse("700Mi")
    await quota(world, "1701Mi")  # somebody writes something
    await world.until(lambda: stands(world) == "Infeasible")

    assert await writes(world) <= FEW
    assert stands(world) == "Infeasible"
