"""A server with the controllers of virtual machines, and a node that is only played."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from aiohttp.test_utils import make_mocked_request

from livevirt.errors import AlreadyExists, Conflict, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.client.local import LocalClient
from livevirt.kube.control.runtime import Factory
from livevirt.kube.controllers import embedded
from livevirt.kube.objects import conditions, core, times
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.pod_resources import YES
from livevirt.kube.objects.request import ActionPath, Answer, Object, Request, User
from livevirt.kube.server.api import Api
from livevirt.kube.server.services import StoreReader
from livevirt.kube.store import Store
from livevirt.vm import controllers, kinds
from livevirt.vm.config import controller
from livevirt.vm.spec.placement_validation import MACHINE_TYPE
from livevirt.vm.subresources.router import Actions

from ..manifests import a_node, a_vm

NAMESPACE = "default"
MERGE = "application/merge-patch+json"
UNCOUNTED = (core.EVENT.resource, core.SERVICE_ACCOUNT.resource)
ADMIN = User("admin", ("system:masters",))
CONTROLLER = User("system:serviceaccount:kubevirt:livevirt-controller")
NODE = User("system:serviceaccount:kubevirt:livevirt-node")


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class World:
    """A server with controllers, and what the store holds right now.

    With `--on kubernetes` it is a `ClusterWorld`.
    """

    embedded: ClassVar[bool] = True
    store: Store
    read: StoreReader
    api: Api
    owner: Client  # the person
    components: Client

    def client_of(self, user: User) -> Client:
        """Return a client that acts as a user."""
        return LocalClient(self.api, user)

    async def changes(self) -> AsyncIterator[None]:
        """Yield after every change of the store."""
        watch = self.store.watch(None, since=self.store.revision)
        try:
            async for _ in watch:
                yield
        finally:
            watch.close()

    @property
    def kubeconfig(self) -> str:
        """The kubeconfig of a cluster that serves it already."""
        return ""

    async def edit(self, patch: Object, *, dry_run: bool = False) -> tuple[str, ...]:
        """Patch the VM as a person does; return the warnings."""
        request = Request(
            "patch", kinds.VM, "v1", ADMIN, NAMESPACE, "web",
            options={"dryRun": "All"} if dry_run else {}, body=patch, patch=MERGE,
            content_type=MERGE,
        )  # fmt: skip
        return (await self.api.call(request)).warnings

    async def act(
        self, action: ActionPath, method: str, body: Any = None, guests: Any = None
    ) -> Answer:
        """Send a request to a subresource as the person does; played guests may answer it."""
        actions = Actions(self.components, guests)
        answer = await actions.handle(action, make_mocked_request(method, "/"), ADMIN, body)
        assert isinstance(answer, Answer)
        return answer

    def get(self, kind: Kind, name: str) -> Object | None:
        return self.read.get(kind, name, NAMESPACE)

    def vm(self, name: str = "web") -> Object:
        return self.get(kinds.VM, name) or {}

    def vmi(self, name: str = "web") -> Object:
        return self.get(kinds.VMI, name) or {}

    def pods(self) -> list[Object]:
        return self.read.list(core.POD, NAMESPACE)

    def shown(self, name: str = "web") -> str:
        status = self.vm(name).get("status") or {}
        return str(status.get("printableStatus", ""))

    def ready(self, name: str = "web") -> bool:
        status = self.vm(name).get("status") or {}
        return conditions.is_true(status.get("conditions"), "Ready")

    async def until(self, holds: Callable[[], Any]) -> None:
        """Return once it holds, asking again after every change of the store."""
        changes = self.changes()
        async with contextlib.aclosing(changes), asyncio.timeout(60):
            while not holds():
                await anext(changes)

    async def remove_machines(self) -> None:
        """Delete the VMs and wait for their end; the store of a test goes with all of them."""

    async def create_vm(self, strategy: str = "Always", name: str = "web", **spec: Any) -> Object:
        return await self.owner.create(kinds.VM, a_vm(name, strategy, **spec), NAMESPACE)

    async def patch_vm(self, patch: Object, name: str = "web") -> Object:
        return await self.owner.patch(kinds.VM, name, NAMESPACE, patch)


async def register_node(
    client: Client, name: str, labels: Object | None = None, cpu: str = "8"
) -> None:
    """Register a node that is ready for guests, with labels of its own added."""
    usual = {
        "kubevirt.io/schedulable": "true",
        "kubernetes.io/arch": "amd64",
        **{f"{MACHINE_TYPE}{each}": YES for each in ("q35", "pc-q35-6.2", "pc-q35-7.2")},
    }
    try:
        await client.create(core.NODE, a_node(name, usual | (labels or {})))
    except AlreadyExists:  # a cluster keeps it from one test to the next
        await client.patch(core.NODE, name, "", {"spec": {"unschedulable": None}})
    room = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": times.format_time(now())}
    status = {"allocatable": room, "conditions": [ready]}
    await client.patch(core.NODE, name, "", {"status": status}, subresource="status")


class PlayedNode:
    """A node without guests: pods start at once and end when they are told to."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._client = world.client_of(NODE)
        self.broken = False  # pods fail before any guest runs
        self.stuck = False  # pods are left alone
        self.newest_machine = "pc-q35-7.2"  # what the alias stands for with its QEMU

    async def register(self) -> None:
        await register_node(self._client, "node-1")

    async def run(self) -> None:
        async with contextlib.aclosing(self._world.changes()) as changes:
            async for _ in changes:
                for pod in self._world.pods():
                    await self._sync(pod)

    async def _sync(self, pod: Object) -> None:
        meta, phase = pod["metadata"], pod["status"]["phase"]
        if self.stuck or not pod["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in meta:
            await self.tell(_instance(pod), "Succeeded")
            with contextlib.suppress(NotFound):
                await self._client.delete(
                    core.POD, meta["name"], NAMESPACE, uid=meta["uid"], grace_seconds=0
                )
        elif phase == "Pending" and self.broken:
            await self._pod(pod, "Failed")
            await self.tell(_instance(pod), "Failed")
        elif phase == "Pending":
            await self._pod(pod, "Running")
        elif phase == "Running":
            vmi = self._world.vmi(_instance(pod))
            if (vmi.get("status") or {}).get("phase") == "Scheduled":
                await self.tell(_instance(pod), "Running")

    async def power_off(self, name: str = "web", phase: str = "Succeeded") -> None:
        """End a guest from within."""
        for pod in self._world.pods():
            if _instance(pod) == name:
                await self._pod(pod, phase)
        await self.tell(name, phase)

    async def tell(self, name: str, phase: str) -> None:
        for _ in range(20):
            vmi = self._world.vmi(name)
            status = vmi.get("status") or {}
            if not vmi or status["phase"] in ("Succeeded", "Failed", phase):
                return
            passed = {"phase": phase, "phaseTransitionTimestamp": "2030-01-01T00:00:00Z"}
            patch = {
                "metadata": {"resourceVersion": vmi["metadata"]["resourceVersion"]},
                "status": {
                    "phase": phase,
                    "phaseTransitionTimestamps": [*status["phaseTransitionTimestamps"], passed],
                    **({"machine": self._machine(vmi)} if phase == "Running" else {}),
                },
            }
            with contextlib.suppress(Conflict, NotFound):
                await self._client.patch(kinds.VMI, name, NAMESPACE, patch)
                return

    def _machine(self, vmi: Object) -> Object:
        asked = vmi["spec"]["domain"]["machine"]["type"]
        return {"type": self.newest_machine if asked == "q35" else asked}

    async def _pod(self, pod: Object, phase: str) -> None:
        ready = "True" if phase == "Running" else "False"
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
        with contextlib.suppress(NotFound):
            await self._client.patch(
                core.POD, pod["metadata"]["name"], NAMESPACE, {"status": status},
                subresource="status",
            )  # fmt: skip


def _instance(pod: Object) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["name"])


@contextlib.asynccontextmanager
async def running(world: World, *more: Factory) -> AsyncIterator[None]:
    extra = (controllers.virtual_machines, controllers.instances, controller.run, *more)
    task = asyncio.create_task(
        embedded.run(world.components, world.store, now, kinds.REGISTRY, extra)
    )
    try:
        yield
        assert not task.done(), "the controllers must never end by themselves"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
