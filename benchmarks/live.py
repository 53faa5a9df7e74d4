"""From an edit of a running VM to the guest seeing it, as ratio to the same done by raw QMP.

    python benchmarks/live.py [--pairs 20]

Prints JSON. One more socket, 512Mi more, one socket less, 32Mi less than at boot by the balloon, a
tablet on USB that comes: each from the moment it is asked for to
a line that a watcher in the guest, which looks every few milliseconds, writes to the serial port.
livevirt is asked by a PATCH of the VM on an open TLS connection; by raw QMP, QEMU and, for the
emulated CPUs that only the guest can take offline, the guest agent are asked directly. Both change
the same guest in turns, and what was changed is brought back before the next turn, untimed.

Monitor and agent have room for one client each, so livevirt does not run during the raw turns: it
is ended, which guests survive, and started again. It then neither helps nor hinders. Every turn
begins with an untimed change of memory, so that no new process is measured.

An emulated CPU can be plugged but only taken offline again. To plug one in each turn, every turn
takes the next socket, and after a few turns the guest is started anew.

`required` lists what must hold; the exit status is 1 if one does not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import uvloop
from api import MERGE, livevirt
from load import Connection, Target, quantile
from scale import VMS, nodes_ready
from start import IMAGE, Host, a_vm, end_guests

from livevirt.kube.client import kubeconfig
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.node.images import ImageStore
from livevirt.paths import DataDir, default_data_dir
from livevirt.qemu import cmdline, lifecycle
from livevirt.qemu.agent import GuestAgent
from livevirt.qemu.machine import MIB, TABLET_PREFIX, Machine, Thread, tablet_device
from livevirt.qemu.observe import PERIPHERALS
from livevirt.qemu.session import Session
from livevirt.vm.sizing import hot_change

NAME, PEN = "bench", "pen"
VMIS = VMS.replace("virtualmachines", "virtualmachineinstances")
MEMORY, MORE, A_LITTLE = 256 * MIB, 512 * MIB, 128 * MIB
PAIRS_PER_START = 4  # each takes two sockets of an emulated machine
SETTLE = 0.5  # seconds after a turn's change, in which its last words are written
SECONDS = 120.0  # for any one thing; an emulated CPU on a busy machine
MOST_RATIO, MOST_EXTRA = 1.2, 0.1
LESS = 32 * MIB  # of which the guest has more than twice as much free
CHANGES = PLUG, GROW, UNPLUG, BALLOON, TABLET = (
    "+1 socket", "+512Mi", "-1 socket", "-32Mi by the balloon", "+1 tablet",
)  # fmt: skip

# Nothing is forked: `read` waits on a pipe that stays empty, the rest is the shell's own. A line
# is also written now and then when nothing has changed, for who has come later.
WATCHER = """#!/bin/sh
mkfifo /run/idle
exec 3<> /run/idle > /dev/ttyS0
last= beat=0
while :; do
    read -r cpus < /sys/devices/system/cpu/online
    read -r _ memory _ < /proc/meminfo
    set -- /sys/bus/usb/devices/[0-9]-[0-9]
    usb=0; [ ! -d "$1" ] || usb=$#
    beat=$((beat + 1))
    if [ "$cpus $memory $usb" != "$last" ] || [ $beat -ge 200 ]; then
        last="$cpus $memory $usb" beat=0
        echo "size $last;"
    fi
    read -t 0.005 _ <&3
done
"""


# ---------------------------------------------------------------- the guest


@dataclass(frozen=True, slots=True)
class Size:
    """What the guest sees of itself."""

    cpus: int
    memory: int  # bytes, without what its kernel keeps for itself
    usb: int = 0  # devices on USB


Holds = Callable[[Size], bool]


class Serial:
    """The watcher's lines, as they come out of the guest's serial port."""

    _LINE = re.compile(rb"size ([\d,-]+) (\d+) (\d+);$")

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def until(self, holds: Holds) -> tuple[Size, float]:
        """Return the first size from now on that is as wanted, and when its line came."""
        async with asyncio.timeout(SECONDS):
            while True:
                line = self._LINE.search(await self._reader.readuntil(b";"))
                now = time.perf_counter()
                if line is None:
                    continue  # something else that ends so
                size = Size(_count(line[1].decode()), int(line[2]) * 1024, int(line[3]))
                if holds(size):
                    return size, now


def _count(cpus: str) -> int:
    """Count the CPUs in a list such as `0-2,4`."""
    ends = [[int(end) for end in part.split("-")] for part in cpus.split(",")]
    return sum(end[-1] - end[0] + 1 for end in ends)


# ---------------------------------------------------------------- both ways


class Way(Protocol):
    """A way of changing the guest's size; asking may return before the guest has followed."""

    async def ready(self, sockets: int) -> None:
        """Ask for as many sockets as there are plugged, online or not."""

    async def sockets(self, count: int) -> None:
        """Ask for one socket more or less."""

    async def memory(self, size: int) -> None:
        """Ask for so many bytes of memory."""

    async def tablet(self, *, there: bool) -> None:
        """Ask for a tablet, or for none."""

    async def settled(self) -> None:
        """Return once nothing is under way any more, given that the guest has followed."""


class Raw:
    """QEMU and the guest agent, asked directly."""

    def __init__(self, machine: Machine, qmp: Session, agent: GuestAgent) -> None:
        self._machine, self._qmp, self._agent = machine, qmp, agent
        self._has, self._ballooned = 0, False

    async def ready(self, sockets: int) -> None:
        self._has = sockets
        if self._machine.accelerator == "tcg" and sockets > 1:
            await self._agent.set_vcpus(range(1, sockets), online=True)

    async def sockets(self, count: int) -> None:
        last = max(count, self._has) - 1
        thread, grows, self._has = Thread(last, 0, 0), count > self._has, count
        if grows:
            driver = self._machine.cpu.type
            device = cmdline.cpu_device(driver, thread.id, *thread)
            await self._qmp.execute("device_add", device)
        elif self._machine.accelerator == "kvm":
            await self._qmp.execute("device_del", {"id": thread.id})
        else:
            await self._agent.set_vcpus([last], online=False)

    async def memory(self, size: int) -> None:
        if size < MEMORY or self._ballooned:
            self._ballooned = size < MEMORY
            await self._qmp.execute("balloon", {"value": min(size, MEMORY)})
            return
        asked = self._machine.memory.requested(size)
        device = f"{PERIPHERALS}/{cmdline.MEMORY_DEVICE}"
        request = {"path": device, "property": "requested-size", "value": asked}
        await self._qmp.execute("qom-set", request)

    async def tablet(self, *, there: bool) -> None:
        if there:
            await self._qmp.execute("device_add", tablet_device(PEN))
        else:
            await self._qmp.execute("device_del", {"id": TABLET_PREFIX + PEN})

    async def settled(self) -> None:
        # QEMU aborts if an emulated CPU comes while its cache is full. livevirt looks after that
        # by itself, and in its turns it is timed.
        while not await lifecycle.room(self._qmp):
            await self._agent.exec("/bin/true")


class Edited:
    """livevirt, asked by a PATCH of the VM."""

    def __init__(self, target: Target, connection: Connection) -> None:
        self._target, self._connection = target, connection
        self._asked: tuple[int, int] = (0, MEMORY)

    async def ready(self, sockets: int) -> None:
        await self.sockets(sockets)
        async with asyncio.timeout(SECONDS):
            while not _has_balloon(await self._instance()):  # noqa: ASYNC110 - a watch costs
                await asyncio.sleep(0.05)

    async def sockets(self, count: int) -> None:
        self._asked = count, self._asked[1]
        await self._patch({"cpu": {"sockets": count}})

    async def memory(self, size: int) -> None:
        self._asked = self._asked[0], size
        await self._patch({"memory": {"guest": f"{size // MIB}Mi"}})

    async def tablet(self, *, there: bool) -> None:
        pen = {"name": PEN, "type": "tablet", "bus": "usb"}
        await self._patch({"devices": {"inputs": [pen] if there else []}})

    async def settled(self) -> None:
        async with asyncio.timeout(SECONDS):
            while not _has(await self._instance(), *self._asked):  # noqa: ASYNC110 - a watch costs
                await asyncio.sleep(0.05)

    async def _patch(self, domain: Object) -> None:
        body = json.dumps({"spec": {"template": {"spec": {"domain": domain}}}}).encode()
        request = self._target.request("PATCH", f"{VMS}/{NAME}", body, MERGE)
        status, answer = await self._connection.ask(request)
        if status != 200:
            raise RuntimeError(f"status {status}: {answer[:300]!r}")

    async def _instance(self) -> Object:
        request = self._target.request("GET", f"{VMIS}/{NAME}")
        _, body = await self._connection.ask(request)
        found: Object = json.loads(body)
        return found


def _has_balloon(vmi: Object) -> bool:
    """Tell whether the guest reports its free memory, without which nothing is taken from it."""
    return bool(((vmi.get("status") or {}).get("memory") or {}).get("balloonStatistics"))


def _has(vmi: Object, sockets: int, memory: int) -> bool:
    """Tell whether an instance has what its VM asks for, and says that nothing is left to do."""
    domain, status = vmi["spec"]["domain"], vmi.get("status") or {}
    told = status.get("currentCPUTopology", {}).get("sockets"), status.get("memory", {})
    return (
        (domain["cpu"]["sockets"], parse(domain["memory"]["guest"]).bytes) == (sockets, memory)
        and (told[0], parse(told[1].get("guestCurrent", "0")).bytes) == (sockets, memory)
        and not hot_change.under_way(vmi)
    )


# ---------------------------------------------------------------- one turn


@dataclass(slots=True)
class Guest:
    """The guest under test."""

    machine: Machine
    serial: Serial
    base: int = 1  # sockets at the beginning of a turn

    async def sees(self, asking: Coroutine[Any, Any, None], holds: Holds) -> float:
        """Return how long after it was asked the guest saw what it should."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(asking)
            _, seen = await self.serial.until(holds)
        return seen - began


async def turn(way: Way, guest: Guest) -> dict[str, float]:
    """Make each change once; return how long each took. What was changed is brought back."""
    base = guest.base
    await way.ready(base)
    size, _ = await guest.serial.until(lambda seen: seen.cpus == base)
    await way.settled()

    async def memory(more: int) -> float:
        has = size.memory + more
        return await change(way.memory(MEMORY + more), lambda seen: abs(seen.memory - has) < MIB)

    async def sockets(count: int) -> float:
        return await change(way.sockets(count), lambda seen: seen.cpus == count)

    async def tablet(there: bool) -> float:
        return await change(way.tablet(there=there), lambda seen: bool(seen.usb) is there)

    async def change(asking: Coroutine[Any, Any, None], holds: Holds) -> float:
        seconds = await guest.sees(asking, holds)
        await way.settled()
        await asyncio.sleep(SETTLE)
        return seconds

    await memory(A_LITTLE)
    await memory(0)
    found = {PLUG: await sockets(base + 1), GROW: await memory(MORE)}
    await memory(0)
    found[UNPLUG] = await sockets(base)
    found[BALLOON] = await memory(-LESS)
    await memory(0)
    found[TABLET] = await tablet(True)
    await tablet(False)
    if guest.machine.accelerator == "tcg":
        guest.base += 1  # the socket that was given back is offline, it cannot be plugged again
    return found


# ---------------------------------------------------------------- the benchmark


def bench_vm() -> Object:
    """Return a VM with room to grow and the watcher in it."""
    vm = a_vm(NAME, f"{MEMORY // MIB}Mi")
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["cpu"] = {"sockets": 1, "maxSockets": 2 * PAIRS_PER_START + 1}
    spec["domain"]["memory"]["maxGuest"] = "1Gi"
    spec["volumes"][-1]["cloudInitNoCloud"]["userData"] = WATCHER
    return vm


@contextlib.asynccontextmanager
async def server(data: DataDir) -> AsyncIterator[tuple[Target, Host]]:
    """Run livevirt until the block ends; guests outlive it."""
    with livevirt(data.root) as (target, _ready, pid):
        client = RemoteClient(kubeconfig.find(str(data.kubeconfig)))
        try:
            async with asyncio.timeout(SECONDS):
                await nodes_ready(client, 1)
            yield target, Host(data, pid, client)
        finally:
            await client.close()


@contextlib.asynccontextmanager
async def running(data: DataDir) -> AsyncIterator[Guest]:
    """Run the guest, freshly started, until the block ends."""
    async with server(data) as (_, host):
        await host.start(bench_vm())
        (folder,) = host.pods()
    intent = folder.read_intent()
    assert intent is not None
    reader, writer = await asyncio.open_unix_connection(intent.machine.serial_socket)
    try:
        yield Guest(intent.machine, Serial(reader))
    finally:
        writer.close()
    async with server(data) as (_, host):
        await host.remove()


async def by_edit(data: DataDir, guest: Guest) -> dict[str, float]:
    """Take a turn with livevirt."""
    async with server(data) as (target, _), Connection(target) as connection:
        return await turn(Edited(target, connection), guest)


async def by_hand(guest: Guest) -> dict[str, float]:
    """Take a turn without it."""
    machine = guest.machine
    async with (
        await Session.connect(machine.qmp_socket) as qmp,
        GuestAgent(machine.agent_socket) as agent,
    ):
        return await turn(Raw(machine, qmp, agent), guest)


async def measure(data: DataDir, pairs: int) -> dict[str, Any]:
    """Take turns; return what each change took both ways."""
    edited: list[dict[str, float]] = []
    raw: list[dict[str, float]] = []
    accelerator = ""
    for first in range(0, pairs, PAIRS_PER_START):
        async with running(data) as guest:
            accelerator = guest.machine.accelerator
            for number in range(first, min(first + PAIRS_PER_START, pairs)):
                if number % 2 == 0:
                    edited.append(await by_edit(data, guest))
                    raw.append(await by_hand(guest))
                else:
                    raw.append(await by_hand(guest))
                    edited.append(await by_edit(data, guest))
    found: dict[str, Any] = {"accelerator": accelerator, "pairs": pairs}
    for name in CHANGES:
        found[name] = compared([each[name] for each in edited], [each[name] for each in raw])
    return found


def compared(edited: list[float], raw: list[float]) -> dict[str, Any]:
    """Return the figures of one change, in seconds."""
    middle = statistics.median(edited), statistics.median(raw)
    return {
        "edit_s": [round(each, 3) for each in edited],
        "raw_s": [round(each, 3) for each in raw],
        "edit_median_s": round(middle[0], 3),
        "raw_median_s": round(middle[1], 3),
        "edit_p90_s": round(quantile(edited, 0.9), 3),
        "raw_p90_s": round(quantile(raw, 0.9), 3),
        "ratio": round(middle[0] / middle[1], 2),
        "extra_s": round(middle[0] - middle[1], 3),
        "allowed_s": round(MOST_RATIO * middle[1] + MOST_EXTRA, 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20)
    args = parser.parse_args()
    if ImageStore(default_data_dir() / "images").find(IMAGE) is None:
        print(f"image {IMAGE} is not in the image store; run: make setup", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="lv-") as name:
        root = Path(name)
        root.chmod(0o711)  # QEMU, which has a user of its own, must get through
        data = DataDir(root / "d")
        try:
            found = uvloop.run(measure(data, args.pairs))
        finally:
            end_guests(data)
    required = {
        f"{name}: median <= {MOST_RATIO} of raw + {MOST_EXTRA * 1000:.0f} ms": (
            found[name]["edit_median_s"] <= found[name]["allowed_s"]
        )
        for name in CHANGES
    }
    print(json.dumps(found | {"required": required}, indent=2))
    return 0 if all(required.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
