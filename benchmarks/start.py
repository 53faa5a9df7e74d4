"""From `kubectl apply` to a guest whose agent answers, as ratio to the same QEMU started by hand.

    python benchmarks/start.py [--rounds 3] [--vms 10]

Prints JSON. Both are measured in turns on a running server, after one start that counts for
neither. By hand means: disks and cgroup are there already, the clock starts with the process. It
has the same command line but for its paths, the same user, and a cgroup of the same weight, and
its disks are as new. What `kubectl apply` adds is kubectl itself, the API, controllers, scheduler,
the node's preparations, and telling over an open watch that the agent has answered.

Then the memory of the server with no VM, one and many. `required` lists what must hold; the exit
status is 1 if one does not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop
from api import BIN, livevirt, memory_mb
from scale import MOST_WRITES, UNCOUNTED, nodes_ready, revision, writes

from livevirt.kube.client import kubeconfig
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.request import Object
from livevirt.node import cgroups, pod_dir, process
from livevirt.node.images import ImageStore
from livevirt.node.intent import Intent
from livevirt.node.pod_dir import PodDir
from livevirt.paths import DataDir, default_data_dir
from livevirt.qemu.agent import GuestAgent
from livevirt.qemu.disk import Image
from livevirt.qemu.errors import AgentUnavailable
from livevirt.vm import kinds

IMAGE = "livevirt/guest:latest"
SPACE, NODE = "default", "node01"
SECONDS = 300.0  # for any one thing; an emulated CPU on a busy machine
SETTLE = 3.0  # seconds until the server has told all there is to tell about a start
MOST_TIME, MOST_MEMORY_MB = 1.15, 3.0


def a_vm(name: str, memory: str) -> Object:
    """Return a VM with a root disk, an empty disk and a NoCloud disc."""
    disks = [{"name": each, "disk": {"bus": "virtio"}} for each in ("root", "scratch", "cloud")]
    devices = {
        "autoattachGraphicsDevice": False,
        "disks": disks,
        "interfaces": [{"name": "default", "masquerade": {}}],
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "runStrategy": "Always",
            "template": {
                "spec": {
                    "domain": {"memory": {"guest": memory}, "devices": devices},
                    "networks": [{"name": "default", "pod": {}}],
                    "terminationGracePeriodSeconds": 0,
                    "volumes": [
                        {"name": "root", "containerDisk": {"image": IMAGE}},
                        {"name": "scratch", "emptyDisk": {"capacity": "64Mi"}},
                        {"name": "cloud", "cloudInitNoCloud": {"userData": "#!/bin/sh\n"}},
                    ],
                }
            },
        },
    }


def all_pods(data: DataDir) -> Iterator[PodDir]:
    """Yield what the nodes of a server, running or not, have of pods."""
    for node in sorted(data.nodes.glob("*")):
        yield from pod_dir.all_in(node / "pods", data.run)


# ---------------------------------------------------------------- by kubectl


@dataclass(frozen=True, slots=True)
class Host:
    """A running server, its files and its administrator."""

    data: DataDir
    pid: int
    client: RemoteClient

    async def kubectl(self, *args: str, about: Sequence[Object] = ()) -> None:
        """Run the real kubectl, which must succeed."""
        env = {**os.environ, "KUBECONFIG": str(self.data.kubeconfig),
               "KUBECACHEDIR": str(self.data.root / "cache")}  # fmt: skip
        given = "\n---\n".join(json.dumps(obj) for obj in about).encode()
        child = await asyncio.create_subprocess_exec(
            BIN / "kubectl", *args, env=env, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await child.communicate(given)
        if child.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(args)} failed")

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[AsyncIterator[Object]]:
        """Open a watch of the instances over TLS, and begin with what there is."""
        events = self.client.watch(kinds.VMI, SPACE)

        async def objects() -> AsyncIterator[Object]:
            async for event in events:
                if event.type != "BOOKMARK":
                    yield event.object | {"gone": event.type == "DELETED"}

        try:
            async with asyncio.timeout(SECONDS):
                yield objects()
        finally:
            await events.aclose()  # type: ignore[attr-defined]

    async def start(self, vm: Object) -> float:
        """Apply a VM; return the seconds until its agent was seen to be connected."""
        opened = asyncio.Event()

        async def see() -> float:
            async with self.watching() as objects:
                opened.set()
                async for vmi in objects:
                    told = (vmi.get("status") or {}).get("conditions")
                    connected = conditions.find(told, "AgentConnected") or {}
                    if connected.get("status") == "True":
                        return time.perf_counter()
            raise RuntimeError("the watch ended")

        seeing = asyncio.create_task(see())
        await opened.wait()
        began = time.perf_counter()
        await self.kubectl("apply", "-f", "-", about=[vm])
        return await seeing - began

    async def run(self, vms: Sequence[Object]) -> None:
        """Apply VMs and return once all are Running."""
        missing = {vm["metadata"]["name"] for vm in vms}
        await self.kubectl("apply", "-f", "-", about=vms)
        async with self.watching() as objects:
            async for vmi in objects:
                if (vmi.get("status") or {}).get("phase") == "Running":
                    missing.discard(vmi["metadata"]["name"])
                if not missing:
                    return

    async def remove(self) -> None:
        """Delete all VMs; return once nothing of them is left."""
        await self.kubectl("delete", "vm", "--all", "--wait", "--timeout=120s")
        async with asyncio.timeout(SECONDS):
            while list(self.pods()):  # noqa: ASYNC110 - files tell nobody
                await asyncio.sleep(0.05)

    def pods(self) -> Iterator[PodDir]:
        """Yield what the nodes have of pods."""
        return all_pods(self.data)

    def spawned(self) -> float:
        """Return when the only guest's process was started, on the clock of the machine's boot."""
        (folder,) = self.pods()
        found = process.noted(folder.process.read_bytes())
        assert found is not None
        return found.started / os.sysconf("SC_CLK_TCK")

    def command_line(self) -> tuple[Intent, PodDir, list[str]]:
        """Return the only guest's intent and files, and what its process was started with."""
        (folder,) = self.pods()
        intent = folder.read_intent()
        assert intent is not None
        found = process.noted(folder.process.read_bytes())
        assert found is not None
        line = Path(f"/proc/{found.pid}/cmdline").read_bytes()
        return intent, folder, [os.fsdecode(word) for word in line.split(b"\0")[:-1]]


# ---------------------------------------------------------------- by hand


class Hand:
    """The same guest, started by nobody but us."""

    def __init__(self, root: Path, intent: Intent, folder: PodDir, argv: Sequence[str]) -> None:
        self._root = root
        images = [disk.image for disk in intent.machine.disks if disk.image is not None]
        (disks,) = {Path(image.path).parent for image in images}
        moves = {str(folder.root): f"{root}/pod", str(folder.run): f"{root}/run",
                 str(disks): f"{root}/pod/disks"}  # fmt: skip
        self._argv = [_moved(word, moves) for word in argv]
        self._agent = _moved(intent.machine.agent_socket, moves)
        self._kept = root / "kept"
        self._account = process.account(kvm=intent.machine.accelerator == "kvm")
        self._limits = intent.limits
        # A pod's cgroup beside those of the node's pods: whoever else runs guests there now is
        # no more in the way of one guest than of the other.
        self._groups = cgroups.Cgroups.discover(intent.node, (os.cpu_count() or 1) * 1000)
        self._cgroup = self._groups.of(f"-by-hand-{os.getpid()}")
        self._bases = {Path(image.path).name: image.backing for image in images}
        self._kept.mkdir()
        for image in images:
            if image.backing is None:
                renew(self._kept / Path(image.path).name, Path(image.path), None)

    async def start(self) -> float:
        """Start QEMU; return the seconds until its agent has answered. Ends it too."""
        self._prepare()
        try:
            began = time.perf_counter()
            qemu = self._spawn()
            try:
                return await self._answered(qemu) - began
            finally:
                qemu.kill()
                qemu.wait()
        finally:
            self._cgroup.remove()

    async def _answered(self, qemu: subprocess.Popen[bytes]) -> float:
        async with asyncio.timeout(SECONDS), GuestAgent(self._agent) as agent:
            while True:
                try:
                    await agent.info()
                    return time.perf_counter()
                except (AgentUnavailable, OSError):
                    # No socket yet; later a question waits in the socket until it is answered.
                    if qemu.poll() is not None:
                        log = (self._root / "pod/qemu.log").read_text()
                        raise RuntimeError(f"QEMU has ended: {log}") from None
                    await asyncio.sleep(0.01)

    def _prepare(self) -> None:
        """Make everything new: disks, logs, the directory of the sockets, the cgroup."""
        disks = self._root / "pod/disks"
        for folder in (self._root / "pod", self._root / "run"):
            shutil.rmtree(folder, ignore_errors=True)
        disks.mkdir(parents=True)
        (self._root / "run").mkdir()
        (self._root / "pod/serial.log").touch()
        for name, base in self._bases.items():
            renew(disks / name, self._kept / name, base)
        if self._account is not None:
            for path in (self._root / "pod", self._root / "run", *self._root.glob("pod/**/*")):
                os.chown(path, *self._account.owner)
        self._groups.create(self._cgroup)
        self._cgroup.apply(self._limits)

    def _spawn(self) -> subprocess.Popen[bytes]:
        return spawn(self._argv, self._root / "pod/qemu.log", self._cgroup, self._account)


def renew(path: Path, kept: Path, base: Image | None) -> None:
    """Make a disk as it was before its guest's first start: on its base, or what was kept of it."""
    if base is None:
        command = ["cp", "--sparse=always", str(kept), str(path)]
    else:
        command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", base.format, "-b", base.path,
                   str(path)]  # fmt: skip
    subprocess.run(command, check=True)


def spawn(
    argv: Sequence[str], log: Path, cgroup: cgroups.PodCgroup, account: process.Account | None
) -> subprocess.Popen[bytes]:
    """Start a QEMU with nothing between it and us."""

    def become() -> None:
        for file in cgroup.procs:
            Path(file).write_text("0")
        os.setsid()
        os.umask(0o077)
        if account is not None:
            os.setgroups(account.groups)
            os.setresgid(*[account.group] * 3)
            os.setresuid(*[account.user] * 3)

    with log.open("wb") as said:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, preexec_fn=become
        )


def _moved(text: str, moves: dict[str, str]) -> str:
    for old, new in moves.items():
        text = text.replace(old, new)
    return text


# ---------------------------------------------------------------- the benchmark


async def times(host: Host, root: Path, rounds: int) -> dict[str, object]:
    """Start a guest both ways in turns."""
    vm = a_vm("bench", "256Mi")
    await host.start(vm)  # what is read for the first time is read now
    hand = Hand(root, *host.command_line())
    await host.remove()
    await hand.start()
    applied, spawned, by_hand = [], [], []

    async def apply() -> None:
        began = time.clock_gettime(time.CLOCK_BOOTTIME)
        applied.append(await host.start(vm))
        spawned.append(host.spawned() - began)
        await host.remove()

    async def by_itself() -> None:
        by_hand.append(await hand.start())

    for number in range(rounds):
        for turn in (apply, by_itself) if number % 2 == 0 else (by_itself, apply):
            await turn()
    middle = statistics.median(applied), statistics.median(by_hand)
    return {
        "apply_s": [round(each, 2) for each in applied],
        "apply_to_process_s": [round(each, 2) for each in spawned],
        "by_hand_s": [round(each, 2) for each in by_hand],
        "apply_median_s": round(middle[0], 2),
        "by_hand_median_s": round(middle[1], 2),
        "ratio": round(middle[0] / middle[1], 3),
    }


async def one_start(host: Host) -> dict[str, int]:
    """Return how often a start makes the server write, until the VM is Running and in the end."""
    before = revision(host.data.database)

    async def see() -> int:
        async for event in host.client.watch(kinds.VM, SPACE):
            if (event.object.get("status") or {}).get("printableStatus") == "Running":
                return int(event.object["metadata"]["resourceVersion"])
        raise RuntimeError("the watch ended")

    seeing = asyncio.create_task(see())
    await host.start(a_vm("counted", "256Mi"))
    running = await seeing
    await asyncio.sleep(SETTLE)
    users = 1  # the request of the user
    found = {
        "writes_until_running": _counted(writes(host.data.database, before, running)) - users,
        "writes_until_agent": _counted(writes(host.data.database, before)) - users,
    }
    await host.remove()
    return found


def _counted(written: dict[str, int]) -> int:
    return sum(count for resource, count in written.items() if resource not in UNCOUNTED)


async def memory(host: Host, vms: int) -> dict[str, float]:
    """Return the server's memory in MB, with no VM, with one and with many."""
    found = {}
    for count in (0, 1, vms):
        if count:
            await host.run([a_vm(f"m-{i}", "128Mi") for i in range(count)])
        await asyncio.sleep(SETTLE)
        found[f"memory_mb_at_{count}"] = round(memory_mb(host.pid), 1)
    await host.remove()
    return found


async def measure(data: DataDir, pid: int, root: Path, args: argparse.Namespace) -> dict:
    """Return all figures of one server."""
    client = RemoteClient(kubeconfig.find(str(data.kubeconfig)))
    host = Host(data, pid, client)
    try:
        async with asyncio.timeout(SECONDS):
            await nodes_ready(client, 1)
        node = await client.get(core.NODE, NODE)
        found: dict = {"accelerator": node["metadata"]["labels"]["livevirt.io/accelerator"]}
        await host.kubectl(
            "get", "vm", "--output=name"
        )  # fills kubectl's cache of the API, which users have
        found |= await times(host, root, args.rounds)
        found |= await one_start(host)
        return found | await memory(host, args.vms)
    finally:
        await client.close()


def end_guests(data: DataDir) -> None:
    """Kill every guest of a server that has ended, and remove its cgroup."""
    for folder in all_pods(data):
        intent = folder.read_intent()
        if intent is None:
            continue
        group = cgroups.PodCgroup(intent.cgroups)
        found = process.find(intent.argv, process.all_pids())
        if found is not None:
            process.kill(found, signal.SIGKILL)
        while folder.locked():
            time.sleep(0.01)
        group.remove()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vms", type=int, default=10)
    args = parser.parse_args()
    if ImageStore(default_data_dir() / "images").find(IMAGE) is None:
        print(f"image {IMAGE} is not in the image store; run: make setup", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="lv-") as name:
        root = Path(name)
        root.chmod(0o711)  # QEMU, which has a user of its own, must get through
        (root / "hand").mkdir(mode=0o711)
        data = DataDir(root / "d")
        try:
            with livevirt(data.root) as (_target, _ready, pid):
                found = uvloop.run(measure(data, pid, root / "hand", args))
        finally:
            end_guests(data)
    none, one, many = (found[f"memory_mb_at_{count}"] for count in (0, 1, args.vms))
    found["memory_mb_per_vm"] = round((many - none) / args.vms, 2)
    required = {
        f"apply to agent <= {MOST_TIME} of by hand": found["ratio"] <= MOST_TIME,
        f"memory of the first VM < {MOST_MEMORY_MB} MB": one - none < MOST_MEMORY_MB,
        f"memory per VM of {args.vms} < {MOST_MEMORY_MB} MB": (many - none) / args.vms
        < MOST_MEMORY_MB,
        f"API writes until Running <= {MOST_WRITES}": found["writes_until_running"] <= MOST_WRITES,
    }
    print(json.dumps(found | {"required": required}, indent=2))
    return 0 if all(required.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
