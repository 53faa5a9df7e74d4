"""What an instance type and a preference cost: to expand and plan one VM, and to switch many.

    python benchmarks/instancetypes.py [--sizes 100,1000] [--nodes 4] [--writers 16]

Prints JSON. `pure` is what the controller decides for one VM that has both: find their revisions,
expand the VM, judge it against what runs, and make the patch of its instance; once for a VM that
was switched to another type, once for one in which nothing has changed. It is the thread's CPU
time per VM, in batches of ten VMs of their own, many times and both in turns. What else the host
does can slow a core down to half its speed for seconds. A yardstick, the same small work each time,
is measured before and after every batch: one between two slow yardsticks says nothing of livevirt.
So the median is that of the calm batches, between yardsticks near the fastest, and it goes on until
there are enough of those; how many they were and the median of all are printed beside it.

`sizes` is the way of a switch through the API: on a fresh server with hollow nodes (see hollow.py)
run so many VMs of type u1.nano, and one PATCH each, the one that `kubectl patch` sends, names
u1.micro. It is over when every instance reports the new size and has no condition of the change.
Cost is the server's CPU time. Writes are counted in the store's log: all but the patches
themselves, Events and Leases.

`required` lists what must hold; the exit status is 1 if one does not.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import uvloop
from api import MERGE
from load import run
from scale import (
    SECONDS,
    SETTLE,
    UNCOUNTED,
    VMS,
    WARM_UP,
    Server,
    hollow,
    nodes_ready,
    revision,
    writes,
)
from scale import a_vm as a_plain_vm

from livevirt import main as server_main
from livevirt.catalog import guests, series
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.objects import core
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.node_share import NOTHING, Share
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.config import settings as config
from livevirt.vm.instancetypes.rules import machine, matchers, revisions
from livevirt.vm.instancetypes.rules.matchers import Lookup
from livevirt.vm.instancetypes.rules.resolution import references
from livevirt.vm.instancetypes.sizing import newer_condition
from livevirt.vm.lifecycle.vm import instances
from livevirt.vm.sizing import hot_change
from livevirt.vm.spec import defaults, disks
from livevirt.vm.verdict.gather import gather_now
from livevirt.vm.verdict.live_patch import live_patch
from livevirt.vm.verdict.verdict import judge
from livevirt.vm.verdict.verdict_inputs import ACCELERATOR

T = TypeVar("T")

BEFORE, AFTER, PREFERENCE = "u1.nano", "u1.micro", "alpine"
MEMORY = "1Gi"  # of AFTER
MOST_MICROSECONDS = 200.0
VM_COUNT, BATCH = 100, 10
CALM = 1.15  # of the fastest yardstick
LEAST_CALM = 200  # batches of each kind, or the run says nothing
LEAST_ROUNDS, MOST_ROUNDS = 50, 500
SWITCH = {"spec": {"instancetype": {"name": AFTER, "revisionName": ""}}}
KUBEVIRT: Object = {
    "spec": {
        "configuration": {
            "vmRolloutStrategy": "LiveUpdate",
            "developerConfiguration": {"featureGates": ["VMLiveUpdateFeatures"]},
        }
    }
}
NODE: Object = {"metadata": {"name": "node-1", "labels": {ACCELERATOR: "kvm"}}}


def a_vm(name: str, instancetype: str = BEFORE) -> Object:
    """Return a VM with three disks, an instance type and a preference."""
    vm: Object = json.loads(a_plain_vm(name))
    del vm["spec"]["template"]["spec"]["domain"]["memory"]
    vm["spec"] |= {"instancetype": {"name": instancetype}, "preference": {"name": PREFERENCE}}
    return vm


# ---------------------------------------------------------------- one VM, in process


class Objects:
    """The objects that a decision looks up, by name."""

    def __init__(self) -> None:
        self._found: dict[tuple[Kind, str], Object] = {}
        for number, obj in enumerate((*series.instancetypes(), *guests.preferences())):
            obj["metadata"] |= {"uid": f"uid-{number}", "generation": 1}
            self.add(kinds.CLUSTER_INSTANCETYPE, obj)
            self.add(kinds.CLUSTER_PREFERENCE, obj)

    def add(self, kind: Kind, obj: Object) -> None:
        """Let an object of a kind be found."""
        if obj["kind"] == kind.kind:
            self._found[kind, obj["metadata"]["name"]] = obj

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object, whatever its namespace is."""
        return self._found.get((kind, name))


def sized(objects: Objects, vm: Object) -> Object:
    """Take the revisions of what a VM names, as its controller does; return the VM with them."""
    found = machine.expand_vm(vm, objects).resolved
    for choice in (found.instancetype, found.preference):
        assert choice is not None
        if choice.capture is not None:
            objects.add(core.REVISION, revisions.revision_of(vm, choice.capture))
    return {**vm, "status": references(vm, found)}


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return what comes of work that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waits")


async def nothing_to_fetch(kind: Kind, name: str, namespace: str) -> Object | None:
    raise AssertionError(f"{kind.plural} {name} is not at hand")


NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


class Guest:
    """Reads what a verdict on the VM of one guest depends on; nothing else runs on its node."""

    def __init__(self, vmi: Object, revision: Object) -> None:
        self.vmi = vmi
        self._found = {
            kinds.VMI: vmi,
            core.REVISION: revision,
            kinds.KUBEVIRT: KUBEVIRT,
            core.NODE: NODE,
        }

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return the object of a kind, whatever its name is."""
        return self._found.get(kind)

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return the node, or nothing."""
        return [NODE] if kind is core.NODE else []

    def occupancy(self, node: str, instance: str) -> tuple[Object | None, Share]:
        """Return that nothing is used."""
        return None, NOTHING


def an_edit(objects: Objects, number: int, to: str) -> tuple[Object, Guest]:
    """Return a VM that names a type by now, and what its guest was started as: u1.nano."""
    vm = a_vm(f"vm-{number}")
    vm["metadata"] |= {"namespace": "default", "uid": f"vm-{number}", "generation": 1}
    started = machine.expand_vm(sized(objects, vm), objects).vm
    vmi = copy.deepcopy(instances.instance_of(started))
    settings = config.read(KUBEVIRT)
    disks.add_missing(vmi["spec"])
    defaults.fill(vmi["spec"], vm["metadata"]["uid"], settings)
    recorded = {config.RECORDED: settings.defaults.recorded()}
    vmi["metadata"]["uid"] = f"vmi-{number}"
    vmi["metadata"]["annotations"] = {**(vmi["metadata"].get("annotations") or {}), **recorded}
    vmi["status"] = {
        "phase": "Running",
        "nodeName": NODE["metadata"]["name"],
        "virtualMachineRevisionName": instances.revision_name(started),
        "memory": dict.fromkeys(("guestAtBoot", "guestCurrent", "guestRequested"), "512Mi"),
        "currentCPUTopology": {"sockets": 1, "cores": 1, "threads": 1},
        "conditions": [{"type": "AgentConnected", "status": "True"}],
    }
    vm["spec"]["instancetype"]["name"] = to
    return sized(objects, vm), Guest(vmi, instances.revision_of(started))


def decide(objects: Objects, vm: Object, guest: Guest) -> Object:
    """Return the patch of the instance, decided as the controller does with all at hand."""

    def look(at_hand: Lookup) -> tuple[machine.Machine, Condition | None]:
        expanded = machine.expand_vm(vm, at_hand)
        return expanded, newer_condition(vm, expanded.resolved, at_hand)

    expanded, _ = at_once(matchers.decide(look, nothing_to_fetch, objects))
    return live_patch(judge(gather_now(expanded.vm, guest, NOON)), guest.vmi)


def yardstick() -> float:
    """Return the CPU time of some work that is always the same and much like a decision's."""
    began = time.thread_time()
    for _ in range(20):
        copied = {name: {"name": name, "list": [name]} for name in map(str, range(100))}
        sorted(copied, key=len)
    return time.thread_time() - began


@dataclass(frozen=True, slots=True)
class Batch:
    """What a decision cost, on average, and how slow the machine was then."""

    microseconds: float
    yardstick: float


class Fleet:
    """VMs of their own that all name a type by now, and what the decision for each has cost."""

    def __init__(self, to: str, patched: Object) -> None:
        """Make them; the decision for each must patch just this."""
        self._objects = Objects()
        self._edits = [an_edit(self._objects, number, to) for number in range(VM_COUNT)]
        self.batches: list[Batch] = []
        for vm, found in self._edits:
            assert decide(self._objects, vm, found) == patched

    def time(self) -> None:
        """Decide once for every VM, and note the CPU time of each batch."""
        before = yardstick()
        for start in range(0, VM_COUNT, BATCH):
            batch = self._edits[start : start + BATCH]
            began = time.thread_time()
            for vm, found in batch:
                decide(self._objects, vm, found)
            microseconds = (time.thread_time() - began) / BATCH * 1e6
            after = yardstick()
            self.batches.append(Batch(microseconds, max(before, after)))
            before = after


def calm(batches: Sequence[Batch], fastest: float) -> list[float]:
    """Return what decisions cost while the machine was at its full speed."""
    return [each.microseconds for each in batches if each.yardstick <= CALM * fastest]


def cost(batches: Sequence[Batch], fastest: float) -> dict[str, float]:
    """Return what the decisions cost in calm, and in all."""
    every, in_calm = [each.microseconds for each in batches], calm(batches, fastest)
    return {
        "calm_median_us": round(statistics.median(in_calm), 1),
        "least_us": round(min(every), 1),
        "median_us": round(statistics.median(every), 1),
        "calm_batches": len(in_calm),
        "batches": len(every),
    }


def planning() -> dict[str, dict[str, float]]:
    """Return what the decision costs for a VM, in turns so that all see the same machine."""
    grown = {"spec": {"domain": {"memory": {"guest": MEMORY}}}}
    fleets = {"switched": Fleet(AFTER, grown), "unchanged": Fleet(BEFORE, {})}
    gc.collect()
    gc.freeze()  # as in a server, where what is there stays
    fastest = yardstick()
    for number in range(MOST_ROUNDS):
        for fleet in fleets.values():
            fleet.time()
            fastest = min(fastest, *(batch.yardstick for batch in fleet.batches))
        found = [len(calm(fleet.batches, fastest)) for fleet in fleets.values()]
        if number >= LEAST_ROUNDS and min(found) >= LEAST_CALM:
            break
    return {name: cost(fleet.batches, fastest) for name, fleet in fleets.items()}


# ---------------------------------------------------------------- many VMs, through the API


Holds = Callable[[Object], bool]


def runs(vm: Object) -> bool:
    """Tell whether a VM is Running."""
    return (vm.get("status") or {}).get("printableStatus") == "Running"


def is_switched(vmi: Object) -> bool:
    """Tell whether a guest has the memory of the new type and nothing is left to do."""
    status = vmi.get("status") or {}
    current = (status.get("memory") or {}).get("guestCurrent", "0")
    return not hot_change.under_way(vmi) and parse(current) == parse(MEMORY)


async def send(
    server: Server, client: RemoteClient, requests: dict[str, bytes], writers: int, kind: Kind,
    holds: Holds, status: int,
) -> float:  # fmt: skip
    """Send a request for each name; return the seconds until it holds for all of them."""
    missing = set(requests)

    async def see() -> None:
        async for event in client.watch(kind, "default"):
            if holds(event.object):
                missing.discard(event.object["metadata"]["name"])
            if not missing:
                return

    began = time.perf_counter()
    seeing = asyncio.create_task(see())
    await run(server.target, iter(requests.values()), writers, status)
    await seeing
    return time.perf_counter() - began


async def catalog_ready(client: RemoteClient) -> None:
    """Return once the types and the preference are installed."""
    for kind, names in (
        (kinds.CLUSTER_INSTANCETYPE, {BEFORE, AFTER}),
        (kinds.CLUSTER_PREFERENCE, {PREFERENCE}),
    ):
        async for event in client.watch(kind):
            names.discard(event.object["metadata"]["name"])
            if not names:
                break


async def measure(server: Server, size: int, args: argparse.Namespace) -> dict[str, Any]:
    """Switch so many running VMs; return what that took."""
    target, client = server.target, server.client()
    names, warm = [f"vm-{i}" for i in range(size)], [f"warm-{i}" for i in range(WARM_UP)]

    async def switch(chosen: list[str]) -> float:
        body = json.dumps(SWITCH).encode()
        patches = {n: target.request("PATCH", f"{VMS}/{n}", body, MERGE) for n in chosen}
        return await send(server, client, patches, args.writers, kinds.VMI, is_switched, 200)

    try:
        async with asyncio.timeout(SECONDS):
            await nodes_ready(client, args.nodes)
            await catalog_ready(client)
            posts = {
                name: target.request("POST", VMS, json.dumps(a_vm(name)).encode())
                for name in (*warm, *names)
            }
            await send(server, client, posts, args.writers, kinds.VM, runs, 201)
            await switch(warm)
            await asyncio.sleep(SETTLE)
            before, cpu = revision(server.database), server.cpu()
            seconds = await switch(names)
            cpu = server.cpu() - cpu
            await asyncio.sleep(SETTLE)
    finally:
        await client.close()
    written = writes(server.database, before)
    counted = sum(n for resource, n in written.items() if resource not in UNCOUNTED) - size
    return {
        "seconds": round(seconds, 2),
        "ms_per_vm": round(seconds / size * 1000, 2),
        "cpu_ms_per_vm": round(cpu / size * 1000, 2),
        "writes_per_vm": round(counted / size, 2),
        "written": written,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,1000", help="VMs to switch; empty for none")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--writers", type=int, default=16)
    args = parser.parse_args()
    gc.set_threshold(*server_main.COLLECT)
    pure = planning()
    found: dict[int, dict[str, Any]] = {}
    for size in [int(size) for size in args.sizes.split(",") if size]:
        with hollow(args.nodes) as server:
            found[size] = uvloop.run(measure(server, size, args))
    required = {}
    for name, costs in pure.items():
        costs["to_limit"] = round(costs["calm_median_us"] / MOST_MICROSECONDS, 2)
        limit = f"{name}: expanding and planning a VM < {MOST_MICROSECONDS:.0f} us"
        required[limit] = costs["to_limit"] < 1 and costs["calm_batches"] >= LEAST_CALM
    print(json.dumps({"pure": pure, "sizes": found, "required": required}, indent=2))
    return 0 if all(required.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
