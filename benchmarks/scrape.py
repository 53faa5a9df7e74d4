"""What a scrape of /metrics costs with many running VMs on hollow nodes, and what none costs.

    python benchmarks/scrape.py [--sizes 10,100] [--scrapes 20]

Prints JSON. Guests are hollow (see hollow.py): their figures are those of the server process, and
their disks count nothing, but all of it is read, derived and written as for real ones. Scrapes are
3 s apart, so that every one asks QEMU again. Cost is the server's CPU time, which other work on the
machine changes least; `idle_cpu_ms` is that of a second in which nobody scrapes. `required` lists
what must hold; the exit status is 1 if one does not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from typing import Any

import uvloop
from load import Connection
from scale import SETTLE, Server, hollow, nodes_ready, start

BETWEEN = 3.0  # seconds; longer than QEMU's answers are kept
MOST_MS_PER_VM = 1.0  # of CPU time


async def measure(server: Server, size: int, scrapes: int) -> dict[str, Any]:
    """Start so many VMs; return what scrapes cost then."""
    client = server.client()
    request = server.target.request("GET", "/metrics")
    try:
        await nodes_ready(client, 1)
        await start(server, client, [f"vm-{number}" for number in range(size)], 8)
        await asyncio.sleep(SETTLE)
        cpu, began = server.cpu(), time.perf_counter()
        await asyncio.sleep(5.0)
        idle = (server.cpu() - cpu) / (time.perf_counter() - began)
        latencies, body = [], b""
        async with Connection(server.target) as connection:
            await connection.ask(request)
            used = server.cpu()
            for _ in range(scrapes):
                await asyncio.sleep(BETWEEN)
                began = time.perf_counter()
                status, body = await connection.ask(request)
                latencies.append(time.perf_counter() - began)
                assert status == 200
            spent = server.cpu() - used - idle * BETWEEN * scrapes
    finally:
        await client.close()
    return {
        "vms": size,
        "samples": sum(not line.startswith(b"#") for line in body.splitlines()),
        "kilobytes": round(len(body) / 1024),
        "median_ms": round(statistics.median(latencies) * 1000, 1),
        "cpu_ms": round(spent / scrapes * 1000, 1),
        "idle_cpu_ms": round(idle * 1000, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default="10,100")
    parser.add_argument("--scrapes", type=int, default=20)
    args = parser.parse_args()
    found = []
    for size in map(int, args.sizes.split(",")):
        with hollow(1) as server:
            found.append(uvloop.run(measure(server, size, args.scrapes)))
    most = max(found, key=lambda each: each["vms"])
    cost = most["cpu_ms"] / most["vms"]
    required = {f"{cost:.2f} ms of CPU per VM, below {MOST_MS_PER_VM}": cost < MOST_MS_PER_VM}
    print(json.dumps({"scrapes": found, "required": required}, indent=2))
    return 0 if all(required.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
