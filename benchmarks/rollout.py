"""A memory edit on each of many running VMs, on hollow nodes: what a live change costs, and grows.

    python benchmarks/rollout.py [--sizes 100,1000 | --all] [--nodes 4] [--writers 16]

Prints JSON. Every size begins with a fresh server (see hollow.py) on which so many VMs run, and a
few more that are edited first and count for nothing. Then each VM's `memory.guest` is doubled over
TLS, by so many connections at once; one watch over TLS sees each instance report the new size and
drop the condition of the change. Only the guest itself is hollow: it takes memory at once.

Cost is the server's CPU time, which other work on the machine changes least. Writes are counted in
the store's log: all but the edits themselves, Events and Leases. `required` lists what must hold;
the exit status is 1 if one does not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from typing import Any

import uvloop
from api import MERGE
from load import run
from scale import (
    FLAT,
    SECONDS,
    SETTLE,
    UNCOUNTED,
    VMS,
    WARM_UP,
    Server,
    hollow,
    nodes_ready,
    revision,
    start,
    writes,
)

from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.sizing import hot_change

MEMORY = "256Mi"  # the VMs start with 128Mi
MOST_WRITES = 6
EDIT = {"spec": {"template": {"spec": {"domain": {"memory": {"guest": MEMORY}}}}}}


def has_memory(vmi: Object) -> bool:
    """Tell whether a guest has what the edit gives it and nothing is left to do."""
    status = vmi.get("status") or {}
    current = (status.get("memory") or {}).get("guestCurrent", "0")
    return not hot_change.under_way(vmi) and parse(current) == parse(MEMORY)


async def edit(server: Server, client: RemoteClient, names: list[str], writers: int) -> float:
    """Edit the VMs of these names; return the seconds until all guests have their memory."""
    missing = set(names)

    async def see() -> None:
        async for event in client.watch(kinds.VMI, "default"):
            if has_memory(event.object):
                missing.discard(event.object["metadata"]["name"])
            if not missing:
                return

    began = time.perf_counter()
    seeing = asyncio.create_task(see())
    body = json.dumps(EDIT).encode()
    patches = (server.target.request("PATCH", f"{VMS}/{name}", body, MERGE) for name in names)
    await run(server.target, patches, writers, 200)
    await seeing
    return time.perf_counter() - began


async def measure(server: Server, size: int, args: argparse.Namespace) -> dict[str, Any]:
    """Edit so many running VMs; return what that took."""
    client = server.client()
    names, warm = [f"vm-{i}" for i in range(size)], [f"warm-{i}" for i in range(WARM_UP)]
    try:
        async with asyncio.timeout(SECONDS):
            await nodes_ready(client, args.nodes)
            await start(server, client, [*warm, *names], args.writers)
            await edit(server, client, warm, args.writers)
            await asyncio.sleep(SETTLE)
            before, cpu = revision(server.database), server.cpu()
            seconds = await edit(server, client, names, args.writers)
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
    parser.add_argument("--sizes", default="100,1000")
    parser.add_argument("--all", action="store_true", help="100, 1,000 and 5,000 VMs")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--writers", type=int, default=16)
    args = parser.parse_args()
    sizes = [100, 1000, 5000] if args.all else [int(size) for size in args.sizes.split(",")]
    found: dict[int, dict[str, Any]] = {}
    for size in sizes:
        with hollow(args.nodes) as server:
            found[size] = uvloop.run(measure(server, size, args))
    least = found[min(sizes)]["cpu_ms_per_vm"]
    required = {}
    for size in sorted(sizes):
        each = found[size]
        each["cpu_to_smallest"] = round(each["cpu_ms_per_vm"] / least, 2)
        required[f"{size}: writes per change <= {MOST_WRITES}"] = (
            each["writes_per_vm"] <= MOST_WRITES
        )
        if size != min(sizes):
            required[f"{size}: cost per VM <= {FLAT} of {min(sizes)}"] = (
                each["cpu_to_smallest"] <= FLAT
            )
    print(json.dumps({"sizes": found, "required": required}, indent=2))
    return 0 if all(required.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
