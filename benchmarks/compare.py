"""Server CPU per operation of this checkout against another one, in paired runs.

    git worktree add /tmp/before v0.1.0
    python benchmarks/compare.py --against /tmp/before [--pairs 5]

Prints JSON. In each pair both checkouts serve the same load one after the other, the first one in
turn: creates and patches of ConfigMaps, starts of VMs on hollow nodes (see hollow.py), and a live
change of the sockets of each of those VMs. Cost is the server's CPU time, which other work on the
machine changes least. The median of each pair's ratio must be at most 1.1; the exit status is 1 if
one is not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvloop
from load import config_map, run
from scale import HERE, SETTLE, VMS, Server, hollow, nodes_ready, start

from livevirt.kube.objects.kind import Kind
from livevirt.vm import kinds

NODES, WRITERS = 2, 8
WRITES, MACHINES = 2000, 150
MOST = 1.1
SECONDS = 300.0
MERGE = "application/merge-patch+json"
MAPS = "/api/v1/namespaces/bench/configmaps"


async def seen(server: Server, kind: Kind, number: int, holds: Callable[[Any], bool]) -> None:
    """Return once so many objects of a kind fulfil a condition."""
    found = set()
    client = server.client()
    async for event in client.watch(kind, "default"):
        if holds(event.object):
            found.add(event.object["metadata"]["name"])
        if len(found) == number:
            break
    await client.close()


def sockets_are(number: int) -> Callable[[Any], bool]:
    """Return a condition: the guest has so many sockets, and nothing is left to change."""

    def holds(vmi: Any) -> bool:
        status = vmi.get("status") or {}
        busy = any(each["type"] == "HotVCPUChange" for each in status.get("conditions") or ())
        return (status.get("currentCPUTopology") or {}).get("sockets") == number and not busy

    return holds


async def api_writes(server: Server) -> float:
    """Return the CPU seconds of a create and a patch of a ConfigMap."""
    space = json.dumps({"metadata": {"name": "bench"}}).encode()
    ask = server.target.request
    await run(server.target, iter([ask("POST", "/api/v1/namespaces", space)]), 1, 201)
    names = [f"map-{i}" for i in range(WRITES)]
    before = server.cpu()
    await run(server.target, (ask("POST", MAPS, config_map(n)) for n in names), WRITERS, 201)
    patch = b'{"data":{"first":"changed"}}'
    patches: Iterator[bytes] = (ask("PATCH", f"{MAPS}/{n}", patch, MERGE) for n in names)
    await run(server.target, patches, WRITERS, 200)
    return (server.cpu() - before) / WRITES


async def vm_starts(server: Server, names: list[str]) -> float:
    """Return the CPU seconds of one start of a VM, from its creation until it is Running."""
    client = server.client()
    before = server.cpu()
    await start(server, client, names, WRITERS)
    await asyncio.sleep(SETTLE)
    await client.close()
    return (server.cpu() - before) / len(names)


async def live_changes(server: Server, names: list[str]) -> float:
    """Return the CPU seconds of one more socket, from the edit until the status has it."""
    patch = b'{"spec":{"template":{"spec":{"domain":{"cpu":{"sockets":2}}}}}}'
    before = server.cpu()
    edits = (server.target.request("PATCH", f"{VMS}/{n}", patch, MERGE) for n in names)
    await run(server.target, edits, WRITERS, 200)
    await seen(server, kinds.VMI, len(names), sockets_are(2))
    await asyncio.sleep(SETTLE)
    return (server.cpu() - before) / len(names)


async def measure(server: Server) -> dict[str, float]:
    """Return the CPU milliseconds of each operation."""
    async with asyncio.timeout(SECONDS):
        client = server.client()
        await nodes_ready(client, NODES)
        await client.close()
        await vm_starts(server, [f"warm-{i}" for i in range(10)])
        names = [f"vm-{i}" for i in range(MACHINES)]
        costs = {
            "api_write": await api_writes(server),
            "vm_start": await vm_starts(server, names),
            "live_change": await live_changes(server, names),
        }
    return {name: round(seconds * 1000, 3) for name, seconds in costs.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, required=True, metavar="DIR")
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    trees = {"this": HERE.parent, "other": args.against.resolve()}
    runs: list[dict[str, dict[str, float]]] = []
    for number in range(args.pairs):
        order = list(trees) if number % 2 else list(reversed(trees))
        pair = {}
        for name in order:
            with hollow(NODES, trees[name]) as server:
                pair[name] = uvloop.run(measure(server))
        runs.append(pair)
        print(f"pair {number + 1} of {args.pairs}: {pair}", file=sys.stderr)
    ratios = {
        operation: round(
            statistics.median(pair["this"][operation] / pair["other"][operation] for pair in runs),
            3,
        )
        for operation in runs[0]["this"]
    }
    required = {f"{name} <= {MOST} of the other": r <= MOST for name, r in ratios.items()}
    print(json.dumps({"cpu_ms": runs, "ratios": ratios, "required": required}, indent=2))
    return 0 if all(required.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
