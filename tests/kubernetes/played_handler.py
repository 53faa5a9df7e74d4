"""VMs on hollow nodes, whose guests are only played, and the objects that belong to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from livevirt.cluster.controller import utc_now
from livevirt.errors import Conflict, NotFound
from livevirt.kube.client import kubeconfig
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.control.cache import Key, owner_key
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects import conditions, core, times
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vmi.launcher import CONTAINER, CREATED_BY
from livevirt.vm.sizing import hot_change
from livevirt.vm.sizing.reservation import covers, reported_size, reservation

from .cluster import KubernetesCluster

SECONDS = 60.0


def a_vm(name: str, strategy: str = "Always", **domain: Any) -> Object:
    """Return a VM of one socket and 256Mi that may grow to four times that."""
    given = {
        "cpu": {"sockets": 1, "cores": 1, "threads": 1, "maxSockets": 4},
        "memory": {"guest": "256Mi", "maxGuest": "1Gi"},
        "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
        **domain,
    }
    volumes = [{"name": "root", "containerDisk": {"image": "livevirt/guest:latest"}}]
    spec = {"domain": {k: v for k, v in given.items() if v is not None}, "volumes": volumes}
    return {
        "apiVersion": kinds.VM.api_version,
        "kind": kinds.VM.kind,
        "metadata": {"name": name},
        "spec": {"runStrategy": strategy, "template": {"spec": spec}},
    }


class PlayedHandler:
    """Plays the node agent: guests run once their pod does, and follow the size of their pod."""

    def __init__(self, client: RemoteClient, informers: Informers) -> None:
        self._client = client
        self._instances, self._pods = informers.of(kinds.VMI), informers.of(core.POD)
        self._controller = Controller("played-handler", self._reconcile)
        self._controller.watches(self._instances)
        self._controller.watches(self._pods, owner_key(kinds.VMI))

    async def run(self) -> None:
        """Play until cancelled."""
        await self._controller.run()

    async def _reconcile(self, key: Key) -> Result:
        vmi = self._instances.get(key)
        if vmi is not None and (change := self._change(vmi)):
            with contextlib.suppress(NotFound):
                await self.write(vmi, change)
        return DONE

    async def write(self, vmi: Object, status: Object) -> None:
        """Change the status of an instance as it was read, and record a change of its phase.

        Without the record, a guest that fails at once counts as one that never ran.
        """
        meta = vmi["metadata"]
        if "phase" in status:
            passed = vmi["status"].get("phaseTransitionTimestamps") or []
            stamp = {
                "phase": status["phase"],
                "phaseTransitionTimestamp": times.format_time(utc_now()),
            }
            status = {**status, "phaseTransitionTimestamps": [*passed, stamp]}
        patch = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status}
        await self._client.patch(kinds.VMI, meta["name"], meta["namespace"], patch)

    def _change(self, vmi: Object) -> Object:
        phase = (vmi.get("status") or {}).get("phase")
        if "deletionTimestamp" in vmi["metadata"] and phase == "Running":
            return {"phase": "Succeeded"}
        running = self._container(vmi)
        if phase == "Scheduled" and running is not None:
            movable = conditions.condition("LiveMigratable", True)
            listed = vmi["status"].get("conditions") or []
            return {"phase": "Running", "conditions": [*listed, movable], **_size(vmi)}
        changing = hot_change.under_way(vmi)
        needed = reservation(vmi, reported_size(vmi))
        if phase == "Running" and changing and covers(running or {}, needed):
            return {hot_change.OBSERVED: hot_change.observed(vmi, changing), **_size(vmi)}
        return {}

    def _container(self, vmi: Object) -> Object | None:
        """Return the resources in force of the running pod of an instance."""
        meta = vmi["metadata"]
        for pod in self._pods.list(meta["namespace"]):
            if (pod["metadata"].get("labels") or {}).get(CREATED_BY) == meta["uid"]:
                for each in pod["status"].get("containerStatuses") or ():
                    if each["name"] == CONTAINER and "running" in each["state"]:
                        return each.get("resources") or {}
        return None


def _size(vmi: Object) -> Object:
    domain = vmi["spec"]["domain"]
    cpu, memory = domain["cpu"], domain["memory"]["guest"]
    return {
        "currentCPUTopology": {n: cpu.get(n) or 1 for n in ("sockets", "cores", "threads")},
        "memory": {"guestAtBoot": memory, "guestRequested": memory, "guestCurrent": memory},
    }


@dataclass
class World:
    """A namespace of a cluster, and its objects as informers see them."""

    client: RemoteClient
    informers: Informers
    namespace: str
    handler: PlayedHandler = field(init=False)

    def __post_init__(self) -> None:
        self.handler = PlayedHandler(self.client, self.informers)

    def vm(self, name: str = "web") -> Object:
        return self.informers.of(kinds.VM).get(Key(self.namespace, name)) or {}

    def vmi(self, name: str = "web") -> Object:
        return self.informers.of(kinds.VMI).get(Key(self.namespace, name)) or {}

    def pods(self) -> list[Object]:
        return self.informers.of(core.POD).list(self.namespace)

    def phase(self, name: str = "web") -> str:
        return str((self.vmi(name).get("status") or {}).get("phase", ""))

    def shown(self, name: str = "web") -> str:
        return str((self.vm(name).get("status") or {}).get("printableStatus", ""))

    def has(self, condition: str, name: str = "web") -> bool:
        return conditions.is_true((self.vm(name).get("status") or {}).get("conditions"), condition)

    async def create(self, vm: Object) -> Object:
        return await self.client.create(kinds.VM, vm, self.namespace)

    async def edit(self, patch: Object, name: str = "web") -> None:
        await self.client.patch(kinds.VM, name, self.namespace, patch)

    async def resize(self, name: str = "web", **domain: Object) -> None:
        await self.edit({"spec": {"template": {"spec": {"domain": domain}}}}, name)

    async def end_guest(self, phase: str, name: str = "web") -> None:
        """End a guest from within, as its node reports it."""
        uid = self.vmi(name)["metadata"]["uid"]
        async with asyncio.timeout(SECONDS):
            while True:
                vmi = await self.client.get(kinds.VMI, name, self.namespace)
                assert vmi["metadata"]["uid"] == uid
                with contextlib.suppress(Conflict):  # the controllers write it too
                    await self.handler.write(vmi, {"phase": phase})
                    return

    async def until(self, fact: Callable[[], bool], seconds: float = SECONDS) -> None:
        """Wait for a fact."""
        async with asyncio.timeout(seconds):
            while not fact():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def until_running(self, *names: str) -> None:
        """Wait for guests that run."""
        await self.until(lambda: all(self.phase(name) == "Running" for name in names))

    async def remove_all(self) -> None:
        """Delete the VMs, and wait until nothing of them is left for the controllers to do."""
        for vm in self.informers.of(kinds.VM).list(self.namespace):
            with contextlib.suppress(NotFound):
                await self.client.delete(kinds.VM, vm["metadata"]["name"], self.namespace)
        await self.until(
            lambda: (
                not any(
                    self.informers.of(kind).list(self.namespace)
                    for kind in (kinds.VM, kinds.VMI, core.POD)
                )
            )
        )


@contextlib.asynccontextmanager
async def playing(
    cluster: KubernetesCluster, namespace: str, user: str = ""
) -> AsyncIterator[World]:
    """Play the guests of a cluster in a new namespace, as a user with all permissions."""
    headers = tuple(kubeconfig.impersonation(user, groups=["system:masters"] if user else []))
    access = replace(kubeconfig.find(cluster.kubeconfig), impersonate=headers)
    client = RemoteClient(access, manager="played-handler")
    meta = {"name": namespace}
    await client.create(core.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    informers = Informers(client)
    world = World(client, informers, namespace)
    tasks = asyncio.create_task(_run(world))
    try:
        await world.until(lambda: not informers.unsynced())
        yield world
    finally:
        tasks.cancel()
        await asyncio.wait({tasks})
        with contextlib.suppress(NotFound):
            await client.delete(core.NAMESPACE, namespace)
        await client.close()
        await asyncio.sleep(0.2)  # TLS connections of watches are closed in the background


async def _run(world: World) -> None:
    async with asyncio.TaskGroup() as group:
        world.informers.of(kinds.VM)
        world.informers.start(group)
        group.create_task(world.handler.run())
