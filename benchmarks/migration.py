"""A guest that moves to another node, as ratio to the same two QEMUs driven by raw QMP.

    python benchmarks/migration.py [--pairs 20] [--resizes 3]

Prints JSON. A guest of 512Mi moves back and forth between two nodes of one machine: idle, then
while it rewrites a part of its memory all the time. Total is from the POST of the migration on an
open TLS connection, or from the start of the second QEMU by hand, to the first sign of life at the
target. Downtime is from the last sign of life at the source to the first at the target. The guest
writes one every few milliseconds to its serial port; see crossing.py for how they are timed.

By hand means a second guest of the same machine, sent with the same capabilities and parameters;
see pair.py. The guests take turns, and one stands still while the other moves. Each moves once
before anything counts.

Then memory that is added to a running guest, in place and by migration, until the guest sees it.
`required` lists what must hold; the exit status is 1 if one does not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import uvloop
from api import livevirt
from crossing import SECONDS, TICKER, Moved, Serial
from live import NAME, VMIS, WATCHER, Edited
from load import Connection, Target
from pair import Pair
from scale import nodes_ready
from start import IMAGE, SPACE, Host, a_vm, end_guests

from livevirt.kube.client import kubeconfig
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object
from livevirt.node.images import ImageStore
from livevirt.node.intent import Intent
from livevirt.node.migration.limits import limits
from livevirt.paths import DataDir, default_data_dir
from livevirt.qemu.machine import MIB
from livevirt.qemu.migration import Limits
from livevirt.vm import kinds

NODES = ("node01", "node02")
MIGRATIONS = VMIS.replace("instances", "instancemigrations")
RUN_STATE = VMIS.replace("/kubevirt.io/", "/subresources.kubevirt.io/") + f"/{NAME}"
MEMORY, MORE = 512 * MIB, 256 * MIB
SETTLE = 1.0  # seconds in which what was begun before a turn ends
MOST_RATIO = 1.3

# Random, because QEMU sends a page of zeros as a few bytes; rewritten in place, so that it is
# always the same 32 MiB that have to be sent again.
LOAD = """
dd if=/dev/urandom of=/run/this bs=1M count=32 2> /dev/null
while :; do cat /run/this 1<> /run/that; done &
"""
PROGRAMS = {"idle": f"#!/bin/sh{TICKER}", "busy": f"#!/bin/sh{LOAD}{TICKER}"}


# ---------------------------------------------------------------- livevirt


class Phases:
    """The phases of migrations, each with the moment a watch first told it."""

    def __init__(self, client: RemoteClient) -> None:
        self._client = client
        self._seen: dict[str, dict[str, float]] = {}
        self._changed = asyncio.Event()

    async def follow(self) -> None:
        """Watch until cancelled."""
        while True:
            async for event in self._client.watch(kinds.MIGRATION, SPACE):
                if event.type != "BOOKMARK":
                    phase = (event.object.get("status") or {}).get("phase", "")
                    seen = self._seen.setdefault(event.object["metadata"]["name"], {})
                    seen.setdefault(phase, time.perf_counter())
                    self._changed.set()

    async def of(self, name: str) -> dict[str, float]:
        """Return when each phase of a migration was told, once the last one was."""
        async with asyncio.timeout(SECONDS):
            while True:
                seen = self._seen.get(name, {})
                if "Failed" in seen:
                    failed = await self._client.get(kinds.MIGRATION, name, SPACE)
                    raise RuntimeError(f"{name} failed: {json.dumps(failed['status'])}")
                if "Succeeded" in seen:
                    return {phase: when for phase, when in seen.items() if phase}
                self._changed.clear()
                await self._changed.wait()


@dataclass(frozen=True, slots=True)
class Server:
    """livevirt with two nodes, and how to ask it."""

    host: Host
    target: Target
    connection: Connection
    phases: Phases
    log: Path

    @property
    def serial(self) -> Serial:
        return Serial(self.host.data.nodes, "*/pods/*/serial.log")

    async def ask(self, method: str, path: str, body: Object | None = None) -> Object:
        """Send a request on the open connection, which must succeed."""
        about = json.dumps(body or {}).encode()
        status, answer = await self.connection.ask(self.target.request(method, path, about))
        if status >= 300:
            raise RuntimeError(f"{method} {path}: status {status}: {answer[:300]!r}")
        found: Object = json.loads(answer) if answer else {}
        return found

    async def start(self, memory: Object, program: str) -> Intent:
        """Start the guest with a program in it; return what its QEMU was started with."""
        vm = a_vm(NAME, "")
        spec = vm["spec"]["template"]["spec"]
        spec["domain"]["memory"] = memory
        spec["volumes"][-1]["cloudInitNoCloud"]["userData"] = program
        await self.host.start(vm)
        (pod,) = self.host.pods()
        intent = pod.read_intent()
        assert intent is not None
        return intent

    async def alone(self) -> None:
        """Return once there is one QEMU, and nothing is left of others."""
        async with asyncio.timeout(SECONDS):
            while len(list(self.host.pods())) != 1:  # noqa: ASYNC110 - files tell nobody
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def up(data: DataDir, log: Path) -> AsyncIterator[Server]:
    """Run livevirt until the block ends."""
    with livevirt(data.root, "--nodes", str(len(NODES)), log=log) as (target, _ready, pid):
        client = RemoteClient(kubeconfig.find(str(data.kubeconfig)))
        phases = Phases(client)
        following = asyncio.create_task(phases.follow())
        try:
            async with asyncio.timeout(SECONDS):
                await nodes_ready(client, len(NODES))
            async with Connection(target) as connection:
                yield Server(Host(data, pid, client), target, connection, phases, log)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await client.close()


# ---------------------------------------------------------------- moves


class Way(Protocol):
    """A guest that is moved one way."""

    async def go_on(self) -> None:
        """Have it run."""

    async def stand_still(self) -> None:
        """Have it use no CPU."""

    async def move(self) -> Moved:
        """Move it; return once nothing is left of where it was."""


class Asked:
    """The guest of livevirt, moved by a POST."""

    _LEFT = re.compile(r"guest left .*transferred=(\d+) downtime_ms=(\d+)")
    _numbers = itertools.count(1)  # of migrations, which may outlive their guests

    def __init__(self, server: Server) -> None:
        self._server = server

    async def go_on(self) -> None:
        await self._server.ask("PUT", f"{RUN_STATE}/unpause")
        await self._server.serial.ticks()

    async def stand_still(self) -> None:
        await self._server.ask("PUT", f"{RUN_STATE}/pause")
        async with asyncio.timeout(SECONDS):
            while not _paused(await self._server.ask("GET", f"{VMIS}/{NAME}")):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # the condition follows the pause

    async def move(self) -> Moved:
        server, name, before = self._server, f"move-{next(self._numbers)}", len(self._costs())
        wanted = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": name},
            "spec": {"vmiName": NAME},
        }
        async with asyncio.TaskGroup() as group:
            crossing = group.create_task(server.serial.crossing())
            began = time.perf_counter()
            await server.ask("POST", MIGRATIONS, wanted)
            reached = await server.phases.of(name)
        await server.alone()
        seen = crossing.result()
        reached["left"] = seen.left
        transferred, paused = next(iter(self._costs()[before:]), (None, None))
        return Moved(
            total=seen.arrived - began,
            downtime=seen.arrived - seen.left,
            transferred=transferred,
            qemu_downtime_ms=paused,
            reached={what: when - began for what, when in reached.items()},
        )

    def _costs(self) -> list[tuple[int, int]]:
        """Return what the server logged of each move: the QEMU that was left is gone by now."""
        found = self._LEFT.findall(self._server.log.read_text())
        return [(int(transferred), int(paused)) for transferred, paused in found]

    async def sent(self) -> Limits:
        """Return how it is sent, given that it was before."""
        vmi = await self._server.ask("GET", f"{VMIS}/{NAME}")
        return limits(vmi["status"]["migrationState"]["migrationConfiguration"])


def _paused(vmi: Object) -> bool:
    return conditions.is_true(vmi["status"].get("conditions"), "Paused")


async def moves(server: Server, root: Path, program: str, pairs: int) -> dict[str, Any]:
    """Move two guests that run a program in turns; return what it took."""
    intent = await server.start({"guest": f"{MEMORY // MIB}Mi"}, program)
    await server.serial.ticks()
    asked = Asked(server)
    await asked.move()
    raw = Pair(root, intent, NODES, await asked.sent())
    await asked.stand_still()
    found: dict[Way, list[Moved]] = {asked: [], raw: []}
    async with raw.running():
        await raw.move()
        await raw.stand_still()
        for number in range(pairs):
            for way in (asked, raw) if number % 2 == 0 else (raw, asked):
                found[way].append(await turn(way))
    await server.host.remove()
    return {"accelerator": intent.machine.accelerator} | compared(found[asked], found[raw])


async def turn(way: Way) -> Moved:
    """Move a guest that stands still before and after."""
    await way.go_on()
    await asyncio.sleep(SETTLE)
    moved = await way.move()
    await way.stand_still()
    return moved


def compared(asked: Sequence[Moved], raw: Sequence[Moved]) -> dict[str, Any]:
    """Return the figures of all moves of one kind."""
    ways = {"livevirt": asked, "raw": raw}
    found: dict[str, Any] = {}
    for name in ("total", "downtime"):
        seconds = {way: [getattr(each, name) for each in rows] for way, rows in ways.items()}
        found[name] = beside(seconds)
        middle = {way: statistics.median(each) for way, each in seconds.items()}
        found[name]["ratio"] = round(middle["livevirt"] / middle["raw"], 2)
    for name in ("transferred", "qemu_downtime_ms"):
        found[name] = {way: [getattr(each, name) for each in rows] for way, rows in ways.items()}
    found["reached_median_s"] = {
        way: {
            what: round(statistics.median(each.reached[what] for each in rows), 3)
            for what in rows[0].reached
            if all(what in each.reached for each in rows)  # a phase may pass unseen
        }
        for way, rows in ways.items()
    }
    return found


def beside(seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Return what was found of each way, and its median."""
    found: dict[str, Any] = {}
    for way, each in seconds.items():
        found[f"{way}_s"] = [round(one, 3) for one in each]
        found[f"{way}_median_s"] = round(statistics.median(each), 3)
    return found


# ---------------------------------------------------------------- sizes


async def resizes(server: Server, rounds: int) -> dict[str, Any]:
    """Add memory to a running guest both ways in turns; return when the guest saw it."""
    await server.start({"guest": f"{MEMORY // MIB}Mi", "maxGuest": "1Gi"}, WATCHER)
    serial, edited = server.serial, Edited(server.target, server.connection)
    await edited.ready(1)
    boot, _ = await serial.memory(lambda _: True)

    async def resize(more: int) -> float:
        wanted = boot + more
        async with asyncio.TaskGroup() as group:
            seen = group.create_task(serial.memory(lambda size: abs(size - wanted) < MIB))
            await asyncio.sleep(0)  # it looks first
            began = time.perf_counter()
            await edited.memory(MEMORY + more)
        await edited.settled()
        await server.alone()
        await asyncio.sleep(SETTLE)
        return seen.result()[1] - began

    await resize(MORE)
    await resize(0)
    in_place, by_migration = [], []
    for _ in range(rounds):
        in_place.append(await resize(MORE))
        await resize(0)
        await allow_in_place(server, allow=False)
        by_migration.append(await resize(MORE))
        await allow_in_place(server, allow=True)
        await resize(0)
    await server.host.remove()
    return beside({"in_place": in_place, "by_migration": by_migration})


async def allow_in_place(server: Server, *, allow: bool) -> None:
    """Have every new size come in place, or every one by migration."""
    gates = {"disabledFeatureGates": None if allow else ["InPlaceHotplug"]}
    methods = {"workloadUpdateMethods": None if allow else ["LiveMigrate"]}
    spec = {"configuration": {"developerConfiguration": gates}, "workloadUpdateStrategy": methods}
    await server.host.client.patch(kinds.KUBEVIRT, "kubevirt", "kubevirt", {"spec": spec})
    await asyncio.sleep(SETTLE)


# ---------------------------------------------------------------- the benchmark


async def measure(data: DataDir, root: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return all figures of one server."""
    found: dict[str, Any] = {"pairs": args.pairs}
    async with up(data, root / "livevirt.log") as server:
        for name, program in PROGRAMS.items():
            found[name] = await moves(server, root / name, program, args.pairs)
        if args.resizes:
            found[f"{MORE // MIB}Mi more"] = await resizes(server, args.resizes)
    return found


def judged(found: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield what must hold, and whether it does."""
    for guest in PROGRAMS:
        for figure in ("total", "downtime"):
            ratio = found[guest][figure]["ratio"]
            yield f"{guest}: {figure} <= {MOST_RATIO} of raw QMP", ratio <= MOST_RATIO


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20, help="of moves, idle and busy each")
    parser.add_argument("--resizes", type=int, default=3, help="in place and by migration each")
    args = parser.parse_args()
    if ImageStore(default_data_dir() / "images").find(IMAGE) is None:
        print(f"image {IMAGE} is not in the image store; run: make setup", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="lv-") as name:
        root = Path(name)
        root.chmod(0o711)  # QEMU, which has a user of its own, must get through
        data = DataDir(root / "d")
        try:
            found = uvloop.run(measure(data, root, args))
        finally:
            end_guests(data)
    required = dict(judged(found))
    print(json.dumps(found | {"required": required}, indent=2))
    return 0 if all(required.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
