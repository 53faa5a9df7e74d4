"""VMs on a real kube-apiserver with hollow nodes: what starts and live changes cost, and growth.

    python benchmarks/kubernetes.py [--sizes 200,1000] [--all] [--writers 8] [--without-embedded]

Prints JSON. One cluster of `tools/cluster` gets more and more VMs; guests are played, and
`livevirt controller` runs with its usual limits. Writes are counted in the audit log of
kube-apiserver: all but those of the benchmark itself, Events and Leases. `ours` are those of the
controllers and the node agent, `kubernetes` those of scheduler, kubelet and other controllers.
The embedded server starts as many VMs as the smallest size in the same run (see scale.py).
`required` lists what must hold; the exit status is 1 if one does not. It needs root.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import scale
import uvloop

from livevirt.cluster.controller import utc_now
from livevirt.errors import NotFound
from livevirt.kube.client import kubeconfig
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.control.cache import Key, owner_key
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects import conditions, core, times
from livevirt.kube.objects.request import Object
from livevirt.vm import controllers, kinds
from livevirt.vm.config.controller import KUBEVIRT, NAMESPACE
from livevirt.vm.lifecycle.vmi.launcher import CONTAINER, CREATED_BY
from livevirt.vm.sizing import hot_change
from livevirt.vm.sizing.reservation import covers, reported_size, reservation

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "tools" / "cluster"
NAME = f"bench-{os.getpid()}"
BENCHMARK, HANDLER = "benchmark", "livevirt-node"
OURS = (
    "livevirt-controller", "kubevirt-controller", controllers.VIRTUAL_MACHINE,
    controllers.INSTANCE, controllers.MIGRATION, controllers.WORKLOAD_UPDATE,
    controllers.EVACUATION, HANDLER,
)  # fmt: skip
WRITES = ("create", "update", "patch", "delete")
UNCOUNTED = ("events", "leases")
SETTLE = 5.0  # seconds in which the last statuses are written
MOST_WRITES, MOST_LIVE, FLAT = 10, 6, 1.5
VMS_PER_NODE = 100


@dataclass
class Cluster:
    """A cluster with the controllers."""

    kubeconfig: str
    process: subprocess.Popen[bytes]  # the controllers
    log: Path  # theirs
    audit: Path = field(init=False)

    def __post_init__(self) -> None:
        self.audit = Path(self.kubeconfig).with_name("audit.log")

    @property
    def pid(self) -> int:
        """The process id of the controllers, which must not end."""
        if self.process.poll() is not None:
            sys.exit(
                f"the controllers ended; the end of their log:\n{self.log.read_text()[-2000:]}"
            )
        return self.process.pid

    def cpu(self) -> float:
        """Return the seconds of CPU that the controllers have used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        """Return the resident memory of the controllers."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))

    def client(self, manager: str) -> RemoteClient:
        """Return a client of the administrator under a name of its own."""
        return RemoteClient(kubeconfig.find(self.kubeconfig), manager=manager)

    def writes(self, since: int) -> Counter[tuple[str, str]]:
        """Return the writes after a position of the audit log, by user agent and resource."""
        found: Counter[tuple[str, str]] = Counter()
        with self.audit.open() as lines:
            lines.seek(since)
            for line in lines:
                event = json.loads(line)
                target = event.get("objectRef") or {}
                agent = event.get("userAgent", "").partition("/")[0]
                done = (event.get("responseStatus") or {}).get("code", 0) < 300
                if not done or event["verb"] not in WRITES or agent == BENCHMARK:
                    continue
                if target.get("resource") not in UNCOUNTED:
                    subresource = target.get("subresource")
                    resource = target["resource"] + (f"/{subresource}" if subresource else "")
                    found[agent if agent in OURS else "kubernetes", resource] += 1
        return found


@contextlib.contextmanager
def cluster(hollow: int) -> Iterator[Cluster]:
    """Run a cluster of hollow nodes with our definitions and controllers."""
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder, "policy.json")
        rules = [{"level": "Metadata", "verbs": list(WRITES)}, {"level": "None"}]
        kind = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
        stages = ["RequestReceived", "ResponseStarted"]
        policy.write_text(json.dumps({**kind, "omitStages": stages, "rules": rules}))
        options = ("--nodes", "0", "--hollow", str(hollow), "--audit-policy", str(policy))
        try:
            _run(TOOL, "up", "--name", NAME, *options)
            config = _run(TOOL, "kubeconfig", "--name", NAME).strip()
            _prepare(config)
            with _controllers(config, Path(folder, "log")) as process:
                yield Cluster(config, process, Path(folder, "log"))
        finally:
            subprocess.run([TOOL, "down", "--name", NAME], capture_output=True)


def _run(*command: str | Path, text: str = "") -> str:
    done = subprocess.run(list(map(str, command)), input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def _prepare(config: str) -> None:
    kubectl = (Path(sys.executable).parent / "kubectl", f"--kubeconfig={config}")
    definitions = _run(sys.executable, "-m", "livevirt", "crds")
    _run(*kubectl, "apply", "--server-side", "-f", "-", text=definitions)
    time.sleep(2)  # kubectl fails on a definition that has no conditions yet
    _run(*kubectl, "wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")
    for obj in (NAMESPACE, KUBEVIRT):
        _run(*kubectl, "apply", "-f", "-", text=json.dumps(obj))
    _run(*kubectl, "label", "node", "--all", "kubevirt.io/schedulable=true")


@contextlib.contextmanager
def _controllers(config: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "livevirt", "controller", "--listen", "127.0.0.1:0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--kubeconfig", config, "--log-level", "warning"],
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        while b"ready: http" not in log.read_bytes():
            if process.poll() is not None:
                sys.exit(log.read_text())
            time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        process.wait()


class PlayedNodes:
    """Plays the node agents: guests run once their pod does, and follow the size of their pod."""

    def __init__(self, client: RemoteClient, informers: Informers) -> None:
        self._client = client
        self.instances, self._pods = informers.of(kinds.VMI), informers.of(core.POD)
        self._by_instance: dict[str, Object] = {}
        self.controller = Controller(HANDLER, self._reconcile)
        self.controller.watches(self.instances)
        self.controller.watches(self._pods, self._instance)

    def _instance(self, pod: Object) -> list[Key]:
        if uid := (pod["metadata"].get("labels") or {}).get(CREATED_BY):
            self._by_instance[uid] = pod
        return list(owner_key(kinds.VMI)(pod))

    async def _reconcile(self, key: Key) -> Result:
        vmi = self.instances.get(key)
        if vmi is not None and (status := self._change(vmi)):
            meta = vmi["metadata"]
            patch = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status}
            with contextlib.suppress(NotFound):
                await self._client.patch(kinds.VMI, meta["name"], meta["namespace"], patch)
        return DONE

    def _change(self, vmi: Object) -> Object:
        status, resources = vmi.get("status") or {}, self._resources(vmi)
        if status.get("phase") == "Scheduled" and resources is not None:
            now = times.format_time(utc_now())
            stamp = {"phase": "Running", "phaseTransitionTimestamp": now}
            return {
                "phase": "Running",
                "phaseTransitionTimestamps": [*status["phaseTransitionTimestamps"], stamp],
                "conditions": [
                    *(status.get("conditions") or ()), conditions.condition("LiveMigratable", True)
                ],
                **_size(vmi),
            }  # fmt: skip
        changing = hot_change.under_way(vmi)
        if status.get("phase") == "Running" and changing:
            needed = reservation(vmi, reported_size(vmi))
            if covers(resources or {}, needed):
                return {hot_change.OBSERVED: hot_change.observed(vmi, changing), **_size(vmi)}
        return {}

    def _resources(self, vmi: Object) -> Object | None:
        pod = self._by_instance.get(vmi["metadata"]["uid"]) or {"status": {}}
        for each in pod["status"].get("containerStatuses") or ():
            if each["name"] == CONTAINER and "running" in each["state"]:
                return each.get("resources") or {}
        return None


def _size(vmi: Object) -> Object:
    domain = vmi["spec"]["domain"]
    cpu, memory = domain["cpu"], domain["memory"]["guest"]
    return {
        "currentCPUTopology": {
            each: cpu.get(each) or 1 for each in ("sockets", "cores", "threads")
        },
        "memory": {"guestAtBoot": memory, "guestRequested": memory, "guestCurrent": memory},
    }


@contextlib.asynccontextmanager
async def playing(client: RemoteClient) -> AsyncIterator[PlayedNodes]:
    """Play all nodes while the block runs."""
    informers = Informers(client)
    nodes = PlayedNodes(client, informers)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            informers.start(group)
            group.create_task(nodes.controller.run())

    task = asyncio.create_task(work())
    try:
        yield nodes
    finally:
        task.cancel()
        await asyncio.wait({task})


async def until(fact: Callable[[], bool], seconds: float = 1800) -> None:
    """Wait for a fact."""
    async with asyncio.timeout(seconds):
        while not fact():  # noqa: ASYNC110
            await asyncio.sleep(0.2)


async def each_of(names: list[str], writers: int, send: Callable[[str], Any]) -> None:
    """Send a request for each name, some at a time."""
    waiting = iter(names)

    async def write() -> None:
        for name in waiting:
            await send(name)

    async with asyncio.TaskGroup() as group:
        for _ in range(writers):
            group.create_task(write())


async def step(
    found: Cluster, count: int, ready: Callable[[], bool], work: Callable[[], Any]
) -> dict[str, Any]:
    """Do some work on VMs; return what it cost each of them."""
    position, cpu, began = found.audit.stat().st_size, found.cpu(), time.perf_counter()
    await work()
    await until(lambda: bool(found.pid) and ready())
    seconds, cpu = time.perf_counter() - began, found.cpu() - cpu
    await asyncio.sleep(SETTLE)
    writes = found.writes(position)
    ours = sum(n for (agent, _), n in writes.items() if agent != "kubernetes")
    return {
        "vms": count,
        "seconds": round(seconds, 1),
        "controller_cpu_ms_per_vm": round(cpu / count * 1000, 2),
        "writes_per_vm": {
            "ours": round(ours / count, 2),
            "kubernetes": round((writes.total() - ours) / count, 2),
        },
        "written": {f"{agent} {what}": n for (agent, what), n in sorted(writes.items())},
        "controller_memory_mb": round(found.memory_mb(), 1),
    }


async def measure(found: Cluster, sizes: list[int], writers: int) -> list[dict[str, Any]]:
    """Start VMs up to each size, and change those that were added while they run."""
    client, agents = found.client(BENCHMARK), found.client(HANDLER)
    results: list[dict[str, Any]] = []
    try:
        async with playing(agents) as nodes:
            there = 0
            for size in sizes:
                names = [f"vm-{number}" for number in range(there, size)]
                results.append(await _grow(found, nodes, client, names, writers) | {"total": size})
                there = size
    finally:
        await client.close()
        await agents.close()
    return results


async def _grow(
    found: Cluster, nodes: PlayedNodes, client: RemoteClient, names: list[str], writers: int
) -> dict[str, Any]:
    keys = [Key("default", name) for name in names]

    def status(key: Key) -> Object:
        return (nodes.instances.get(key) or {}).get("status") or {}

    def sockets(key: Key) -> int:
        return int((status(key).get("currentCPUTopology") or {}).get("sockets", 0))

    async def create(name: str) -> None:
        vm = json.loads(scale.a_vm(name))
        domain = vm["spec"]["template"]["spec"]["domain"]
        # There is no webhook here that would set these.
        domain["cpu"] = {"sockets": 1, "cores": 1, "threads": 1, "maxSockets": 4}
        domain["memory"]["maxGuest"] = "512Mi"
        await client.create(kinds.VM, vm, "default")

    async def resize(name: str) -> None:
        domain = {"cpu": {"sockets": 2}}
        patch = {"spec": {"template": {"spec": {"domain": domain}}}}
        await client.patch(kinds.VM, name, "default", patch)

    started = await step(
        found, len(names), lambda: all(status(key).get("phase") == "Running" for key in keys),
        lambda: each_of(names, writers, create),
    )  # fmt: skip
    changed = await step(
        found, len(names), lambda: all(sockets(key) == 2 for key in keys),
        lambda: each_of(names, writers, resize),
    )  # fmt: skip
    return {"start": started, "live_change": changed}


def embedded(size: int, writers: int) -> dict[str, Any]:
    """Return what starting VMs costs the embedded server."""
    with scale.hollow(4) as server:
        args = argparse.Namespace(nodes=4, writers=writers)
        return uvloop.run(scale.measure(server, size, args))


def requirements(results: list[dict[str, Any]]) -> dict[str, bool]:
    """Return what must hold, and whether it does."""
    found = {}
    first = results[0]["start"]["controller_cpu_ms_per_vm"]
    for each in results:
        start, change, total = each["start"], each["live_change"], each["total"]
        writes = start["writes_per_vm"], change["writes_per_vm"]
        found[f"{total}: writes per start <= {MOST_WRITES}"] = writes[0]["ours"] <= MOST_WRITES
        found[f"{total}: writes per live change <= {MOST_LIVE}"] = writes[1]["ours"] <= MOST_LIVE
        if each is not results[0]:
            ratio = start["controller_cpu_ms_per_vm"] / first
            found[f"{total}: CPU per start <= {FLAT} of {results[0]['total']}"] = ratio <= FLAT
    return found


def main() -> int:
    """Run the benchmark and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="200,1000", help="total numbers of VMs, ascending")
    parser.add_argument("--all", action="store_true", help="1,000 and then 5,000 VMs")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--without-embedded", action="store_true")
    args = parser.parse_args()
    sizes = [1000, 5000] if args.all else [int(size) for size in args.sizes.split(",")]
    with cluster(max(sizes) // VMS_PER_NODE + 2) as found:
        results = uvloop.run(measure(found, sizes, args.writers))
    shown: dict[str, Any] = {"sizes": results}
    if not args.without_embedded:
        shown["embedded"] = embedded(sizes[0], args.writers)
    required = requirements(results)
    print(json.dumps({**shown, "required": required}, indent=2))
    return 0 if all(required.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
