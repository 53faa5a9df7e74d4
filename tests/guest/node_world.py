"""A server without sockets and a node agent on a data directory, for tests that boot guests.

Run as a program it makes a guest, says so, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from livevirt.kube.admission import builtin
from livevirt.kube.client.local import LocalClient
from livevirt.kube.control.supervisor import Supervisor
from livevirt.kube.controllers import bootstrap
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.request import Object, User
from livevirt.kube.server.api import Api
from livevirt.kube.server.services import Services, StoreReader
from livevirt.kube.store import Store
from livevirt.node import cgroups, pod_dir, process
from livevirt.node.agent import Agent
from livevirt.node.embedded import NodeConfig, setup
from livevirt.node.host import Host
from livevirt.node.images import ImageStore
from livevirt.paths import DataDir
from livevirt.qemu.accelerator import Accelerator
from livevirt.vm import kinds
from livevirt.vm.config import controller as config_controller

# Other runs on this machine have other nodes; the program we start has ours.
NODE = os.environ.setdefault("LIVEVIRT_TEST_NODE", f"node-{os.getpid()}")
SPACE = "default"
IMAGE = "livevirt/guest:latest"
GUEST = Path(__file__).parents[2] / ".cache/guest/guest.qcow2"
CAPACITY: dict[str, Quantity] = {"cpu": parse("4"), "memory": parse("4Gi")}
EMULATED = Accelerator("tcg", "asked for by a test")


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class World:
    """One data directory, its store and its node agent."""

    root: Path
    store: Store
    client: LocalClient
    read: StoreReader
    agent: Agent

    def get(self, kind: Kind, name: str) -> Object:
        return self.read.get(kind, name, SPACE if kind.namespaced else "") or {}

    def vmi(self, name: str = "web") -> Object:
        return self.get(kinds.VMI, name)

    def phase(self, name: str = "web") -> str:
        return (self.vmi(name).get("status") or {}).get("phase", "")

    def condition(self, type_: str, name: str = "web") -> Object:
        found = (self.vmi(name).get("status") or {}).get("conditions")
        return conditions.find(found, type_) or {}

    def pod(self, vmi: str = "web") -> Object:
        return self.get(core.POD, f"virt-launcher-{vmi}-aaaaa")

    def pod_phase(self, vmi: str = "web") -> str:
        return (self.pod(vmi).get("status") or {}).get("phase", "")

    def container(self, vmi: str = "web") -> Object:
        statuses = (self.pod(vmi).get("status") or {}).get("containerStatuses")
        return statuses[0] if statuses else {}

    async def until(self, what: str, holds: Callable[[], Any], seconds: float = 60) -> None:
        """Return once it holds, asking again after every change of the store."""
        watch = self.store.watch(None, since=self.store.revision)
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    await anext(watch)
        except TimeoutError:
            raise AssertionError(
                f"not in {seconds} s: {what}\n{self.vmi()}\n{self.pod()}"
            ) from None
        finally:
            watch.close()

    async def make(
        self, vmi: Object, selector: dict[str, str] | None = None, **resources: Any
    ) -> None:
        """Create a VMI and its pod, bound to our node, as the controllers would."""
        made = await self.client.create(kinds.VMI, vmi, SPACE)
        name = made["metadata"]["name"]
        await self.client.patch(kinds.VMI, name, SPACE, {"status": {"phase": "Scheduled"}})
        owner = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "name": name,
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        resources = resources or {"requests": {"cpu": "1", "memory": "512Mi"}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"virt-launcher-{name}-aaaaa", "ownerReferences": [owner]},
            "spec": {
                "nodeName": NODE,
                "nodeSelector": selector or {},
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 30,
                "readinessGates": [{"conditionType": "kubevirt.io/virtual-machine-unpaused"}],
                "containers": [{"name": "compute", "image": "qemu", "resources": resources}],
            },
        }
        await self.client.create(core.POD, pod, SPACE)

    async def run(self, script: str, name: str = "web") -> str:
        """Run a script in the guest and return what it printed."""
        guest = self.agent.guest(SPACE, name)
        assert guest is not None
        done = await guest.agent.exec("/bin/sh", ["-c", script])
        return done.stdout.decode().strip()


def a_vmi(name: str = "web", **changes: Any) -> Object:
    """Return a VMI with a root disk, an empty disk and a NoCloud disc."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name},
        "spec": {
            "domain": {
                "cpu": {"sockets": 1, "cores": 1, "threads": 1},
                "memory": {"guest": "256Mi"},
                "devices": {
                    "autoattachGraphicsDevice": False,
                    "disks": [
                        {"name": "root", "disk": {"bus": "virtio"}},
                        {"name": "scratch", "disk": {"bus": "virtio"}, "serial": "SCRATCH"},
                        {"name": "cloud", "disk": {"bus": "virtio"}},
                    ],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "terminationGracePeriodSeconds": 30,
            "volumes": [
                {"name": "root", "containerDisk": {"image": IMAGE}},
                {"name": "scratch", "emptyDisk": {"capacity": "64Mi"}},
                {
                    "name": "cloud",
                    "cloudInitNoCloud": {"userData": "#!/bin/sh\necho hello > /tmp/greeting\n"},
                },
            ],
            **changes,
        },
    }


def qemus(root: Path) -> list[int]:
    """Return the QEMU processes whose sockets are below a directory."""
    found = []
    for pid in process.all_pids():
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if line.startswith(b"qemu-system") and os.fsencode(root) in line:
                found.append(pid)
    return found


def leftovers(root: Path) -> list[str]:
    """Return what is left of guests: sockets, disks, cgroups."""
    found = [*(root / "run").glob("*"), *root.glob("nodes/*/pods/*/disks")]
    groups = [path for each in ("cpu", "memory", "cpuset") for path in cgroup_folder(each)]
    return [str(path) for path in (*found, *groups)]


def files(root: Path) -> list[Path]:
    """Return what is kept of pods, logs too."""
    return list(root.glob("nodes/*/pods/*"))


def cgroup_folder(controller: str) -> list[Path]:
    """Return the cgroups of the pods of our node."""
    own = Path("/proc/self/cgroup").read_text()
    for found in cgroups.hierarchies(Path("/proc/self/mountinfo").read_text(), own):
        if controller in found.controllers:
            return list(Path(found.mount, found.own, "livevirt", NODE).glob("pod*"))
    return []


@contextlib.contextmanager
def a_data_dir() -> Iterator[Path]:
    """A data directory that an unprivileged QEMU can pass through, with a short path."""
    with tempfile.TemporaryDirectory(prefix="lv-") as path:
        os.chmod(path, 0o711)
        root = Path(path)
        yield root
        for pid in qemus(root):
            os.kill(pid, signal.SIGKILL)
        for folder in pod_dir.all_in(root / "nodes" / NODE / "pods", root / "run"):
            intent = folder.read_intent()
            while folder.locked():
                time.sleep(0.01)
            _remove(cgroups.PodCgroup(intent.cgroups if intent else ()))


def _remove(cgroup: cgroups.PodCgroup, seconds: float = 10.0) -> None:
    """Remove a cgroup as soon as the kernel has forgotten the processes that died in it."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return cgroup.remove()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextlib.contextmanager
def an_image_store() -> Iterator[Path]:
    """An image store with the test guest in it, if that has been built, and an empty disk."""
    with tempfile.TemporaryDirectory(prefix="lv-") as path:
        os.chmod(path, 0o711)
        store = ImageStore(Path(path, "images"))
        blank = Path(path, "blank.img")
        blank.write_bytes(bytes(1 << 20))
        store.import_(blank, "blank")
        if GUEST.exists():
            store.import_(GUEST, IMAGE)
        yield store.root


def an_agent(client: LocalClient, root: Path, images: Path) -> Agent:
    host = Host(EMULATED, (7, 2, 0), process.account(kvm=False))
    node = NodeConfig(NODE, CAPACITY)
    parts = setup(node, DataDir(root), ImageStore(images), host)
    return Agent(NODE, client, host, now, parts)


@contextlib.asynccontextmanager
async def opened(root: Path, images: Path) -> AsyncIterator[World]:
    """Open a data directory, without running anything yet."""
    store = Store.open(root / "livevirt.db")
    try:
        reader = StoreReader(store)
        api = Api(Services(store, builtin.RULES, now, reader, kinds.REGISTRY), {})
        user = User("system:serviceaccount:kubevirt:livevirt-controller", ("system:masters",))
        client = LocalClient(api, user)
        await bootstrap.ensure(client)
        await config_controller.ensure(client)
        yield World(root, store, client, reader, an_agent(client, root, images))
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def working(agent: Agent) -> AsyncIterator[None]:
    """Run the agent for a while; guests it started run on afterwards."""
    task = asyncio.create_task(agent.run(Supervisor()))
    try:
        yield
        assert not task.done(), "the agent must never end by itself"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def eventually(what: str, holds: Callable[[], object], seconds: float = 60) -> None:
    """Return once it holds of the processes and files of this machine."""
    try:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110 - processes and files tell nobody
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not in {seconds} s: {what}") from None


def a_blank_vmi(name: str = "web", image: str = "blank", **spec: Any) -> Object:
    """Return a VMI that never gets further than the firmware."""
    vmi = a_vmi(name, **spec)
    vmi["spec"]["domain"]["memory"]["guest"] = "64Mi"
    vmi["spec"]["domain"]["devices"]["disks"] = [{"name": "root", "disk": {"bus": "virtio"}}]
    vmi["spec"]["volumes"] = [{"name": "root", "containerDisk": {"image": image}}]
    return vmi


async def _one(world: World) -> None:
    """Make a guest and let it run."""
    await world.make(a_blank_vmi())
    await world.until("it runs", lambda: world.pod_phase() == "Running")
    print("running", flush=True)
    await asyncio.Event().wait()


async def _many(world: World) -> None:
    """Make guests and delete them again, for ever; what an earlier run left is not minded."""
    print("running", flush=True)
    for number in itertools.count():
        name = f"vm{time.time_ns()}-{number}"
        await world.make(a_blank_vmi(name))
        await world.until("it runs", lambda: world.pod_phase(name) == "Running")  # noqa: B023
        pod = world.pod(name)["metadata"]["name"]
        await world.client.delete(core.POD, pod, SPACE, grace_seconds=1)
        await world.until("it is gone", lambda: not world.pod(name))  # noqa: B023


async def _main(root: Path, images: Path, story: str) -> None:
    async with opened(root, images) as world, working(world.agent):
        await {"one": _one, "many": _many}[story](world)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
