"""VMs created through the API until all are Running, on hollow nodes: what each costs, and grows.

    python benchmarks/scale.py [--sizes 100,1000 | --all] [--nodes 4] [--writers 16]

Prints JSON. Every size begins with a fresh server (see hollow.py), warmed up by a few VMs. The VMs
are created over TLS by so many connections at once; one watch over TLS sees them become Running.
Cost is the server's CPU time, which other work on the machine changes least. Writes are counted in
the store's log: all but the creation of the VMs themselves, Events and Leases.
`required` lists what must hold; the exit status is 1 if one does not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from load import Target, run

from livevirt.kube.client import kubeconfig
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.objects import core
from livevirt.node.images import ImageStore
from livevirt.vm import kinds

HERE = Path(__file__).resolve().parent
VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
WARM_UP = 20
SETTLE = 2.0  # seconds in which the last statuses are written
SECONDS = 600.0  # for all VMs of a size
UNCOUNTED = ("events", "leases.coordination.k8s.io")
MOST_WRITES, FLAT, LONGEST = 10, 1.3, 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running server with hollow nodes."""

    target: Target
    folder: Path
    pid: int

    @property
    def database(self) -> Path:
        return self.folder / "livevirt.db"

    def cpu(self) -> float:
        """Return the seconds of CPU it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        """Return its resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    def client(self) -> RemoteClient:
        """Return a client that comes over TLS."""
        return RemoteClient(kubeconfig.find(str(self.folder / "kubeconfig")))


def revision(database: Path) -> int:
    """Return the number of the last change in a server's database."""
    with _read(database) as reader:
        (found,) = reader.execute("SELECT max(revision) FROM log").fetchone()
    return int(found)


def writes(database: Path, since: int, until: int = sys.maxsize) -> dict[str, int]:
    """Return how often objects of each resource were written after one revision, until another."""
    with _read(database) as reader:
        (kept,) = reader.execute("SELECT revision FROM compaction").fetchone()
        assert kept <= since, "the history this counts is gone"
        rows = reader.execute(
            "SELECT resource, count(*) FROM log WHERE revision > ? AND revision <= ?"
            " GROUP BY resource",
            (since, until),
        )
        return dict(rows.fetchall())


def _read(database: Path) -> contextlib.closing[sqlite3.Connection]:
    return contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True))


@contextlib.contextmanager
def hollow(nodes: int, tree: Path = HERE.parent) -> Iterator[Server]:
    """Start the server of a checkout, with so many hollow nodes, on a data directory of its own."""
    with tempfile.TemporaryDirectory(prefix="lv-") as name:
        root = Path(name)
        blank = root / "blank.img"
        blank.write_bytes(bytes(1 << 20))
        ImageStore(root / "images").import_(blank, "blank")
        settings = {
            "data_dir": str(root / "d"), "port": 0, "log_level": "error", "nodes": nodes,
            "node_capacity": {"cpu": "1000000", "memory": "1Pi"},
            "image_store": str(root / "images"),
        }  # fmt: skip
        server = subprocess.Popen(
            [sys.executable, tree / "benchmarks" / "hollow.py", json.dumps(settings)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(tree / "src")},
        )  # fmt: skip
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().split(",")[0].rsplit(":", 1)[1])
            tls = ssl.create_default_context(cafile=root / "d/pki/ca.crt")
            tls.load_cert_chain(root / "d/pki/admin.pem")
            yield Server(Target("127.0.0.1", port, tls), root / "d", server.pid)
        finally:
            server.terminate()
            server.wait()


def a_vm(name: str) -> bytes:
    """Return a small VM that is to run, as JSON."""
    disks = [{"name": each, "disk": {"bus": "virtio"}} for each in ("root", "scratch", "cloud")]
    obj = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": {
            "runStrategy": "Always",
            "template": {
                "metadata": {"labels": {"kubevirt.io/domain": name}},
                "spec": {
                    "domain": {
                        "memory": {"guest": "128Mi"},
                        "devices": {
                            "disks": disks,
                            "interfaces": [{"name": "default", "masquerade": {}}],
                        },
                    },
                    "networks": [{"name": "default", "pod": {}}],
                    "volumes": [
                        {"name": "root", "containerDisk": {"image": "blank"}},
                        {"name": "scratch", "emptyDisk": {"capacity": "64Mi"}},
                        {"name": "cloud", "cloudInitNoCloud": {"userData": "#!/bin/sh\n"}},
                    ],
                },
            },
        },
    }
    return json.dumps(obj).encode()


async def nodes_ready(client: RemoteClient, nodes: int) -> None:
    """Return once every node has said that it is ready."""
    ready = set()
    async for event in client.watch(core.NODE):
        conditions = (event.object.get("status") or {}).get("conditions") or ()
        if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
            ready.add(event.object["metadata"]["name"])
        if len(ready) == nodes:
            return


async def start(server: Server, client: RemoteClient, names: list[str], writers: int) -> float:
    """Create VMs of these names; return the seconds until all are Running."""
    missing = set(names)

    async def see() -> None:
        async for event in client.watch(kinds.VM, "default"):
            if (event.object.get("status") or {}).get("printableStatus") == "Running":
                missing.discard(event.object["metadata"]["name"])
            if not missing:
                return

    began = time.perf_counter()
    seeing = asyncio.create_task(see())
    posts = (server.target.request("POST", VMS, a_vm(name)) for name in names)
    await run(server.target, posts, writers, 201)
    await seeing
    return time.perf_counter() - began


async def measure(server: Server, size: int, args: argparse.Namespace) -> dict[str, Any]:
    """Start so many VMs; return what that took."""
    client = server.client()
    try:
        async with asyncio.timeout(SECONDS):
            await nodes_ready(client, args.nodes)
            await start(server, client, [f"warm-{i}" for i in range(WARM_UP)], args.writers)
            await asyncio.sleep(SETTLE)
            before, idle, cpu = revision(server.database), server.memory_mb(), server.cpu()
            names = [f"vm-{i}" for i in range(size)]
            seconds = await start(server, client, names, args.writers)
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
        "memory_before_mb": round(idle, 1),
        "memory_after_mb": round(server.memory_mb(), 1),
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
        required[f"{size}: writes per VM <= {MOST_WRITES}"] = each["writes_per_vm"] <= MOST_WRITES
        if size != min(sizes):
            required[f"{size}: cost per VM <= {FLAT} of {min(sizes)}"] = (
                each["cpu_to_smallest"] <= FLAT
            )
        if size == 1000:
            required[f"1000 VMs in < {LONGEST:.0f} s"] = each["seconds"] < LONGEST
    print(json.dumps({"sizes": found, "required": required}, indent=2))
    return 0 if all(required.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
