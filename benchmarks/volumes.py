"""From an edit of a VM's volumes to the guest that sees it, beside the same done by raw QMP.

    python benchmarks/volumes.py [--pairs 20] [--many 3]

Prints JSON. A disk more, a disc put into a CD-ROM drive, swapped for another and ejected: each from
the moment it is asked for to a line that a watcher in the guest, which looks every few
milliseconds, writes to the serial port. livevirt is asked by a PATCH of the VM on an open TLS
connection; by raw QMP, QEMU is asked directly. Both change the same guest in turns, and every turn
leaves it as it was. The images are opened by whoever asks, since QEMU has no right to.

QEMU's monitor has room for one client, so livevirt does not run during the raw turns: it is ended,
which guests survive, and started again. It then neither helps nor hinders. Every turn begins with
untimed changes, so that no new process is measured.

Then many disks in one edit. `required` lists what must hold; the exit status is 1 if one does not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import uvloop
from api import BIN, MERGE
from live import server
from load import Connection, Target, quantile
from scale import VMS
from start import IMAGE, SPACE, Host, a_vm, end_guests

from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.node.domain import DISK_PREFIX
from livevirt.node.images import ImageStore
from livevirt.paths import DataDir, default_data_dir
from livevirt.qemu import act, disk
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.session import Session

NAME, DRIVE = "bench", "cd"
VMIS = VMS.replace("virtualmachines", "virtualmachineinstances")
DISCS = RED, BLUE = "red", "blue"
FEW, MANY = 20, 60  # disks in one edit
SPARES = [f"spare{number}" for number in range(MANY)]
SETTLE = 0.3  # seconds after a turn's change, in which its last words are written
SECONDS = 180.0  # for any one thing; an emulated CPU on a busy machine
MOST_EXTRA, MOST_GROWTH = 0.1, 1.3
CHANGES = PLUG, INJECT, SWAP, EJECT = "a disk more", "inject", "swap", "eject"

# Nothing is forked: `read` waits on a pipe that stays empty, the rest is the shell's own. Looking
# into the drive must not lock its tray, nor close it between two discs. A line is also written now
# and then when nothing has changed, for who has come later.
WATCHER = """#!/bin/sh
mkfifo /run/idle
exec 3<> /run/idle > /dev/ttyS0 2> /dev/null
until [ -e /proc/sys/dev/cdrom/lock ]; do read -t 0.1 _ <&3; done
echo 0 > /proc/sys/dev/cdrom/lock
echo 0 > /proc/sys/dev/cdrom/autoclose
last= beat=0
while :; do
    set -- /sys/block/sd*
    [ -e "$1" ] || shift
    read -r disc < /dev/sr0 || disc=none
    beat=$((beat + 1))
    if [ "$# $disc" != "$last" ] || [ $beat -ge 200 ]; then
        last="$# $disc" beat=0
        echo "seen $last;"
    fi
    read -t 0.005 _ <&3
done
"""


# ---------------------------------------------------------------- the guest


@dataclass(frozen=True, slots=True)
class View:
    """What the guest sees: how many SCSI disks, and what the disc in its drive says."""

    disks: int
    disc: str


class Serial:
    """The watcher's lines, as they come out of the guest's serial port."""

    _LINE = re.compile(rb"seen (\d+) (\w+);$")

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def until(self, wanted: View) -> float:
        """Return when the first line from now on came that is as wanted."""
        async with asyncio.timeout(SECONDS):
            while True:
                line = self._LINE.search(await self._reader.readuntil(b";"))
                now = time.perf_counter()
                if line is not None and View(int(line[1]), line[2].decode()) == wanted:
                    return now


# ---------------------------------------------------------------- both ways


class Way(Protocol):
    """A way of changing what the guest has; asking may return before the guest has followed."""

    async def have(self, disks: Sequence[str], disc: str) -> None:
        """Ask for just these disks, and this disc in the drive, empty for none."""

    async def settled(self) -> None:
        """Return once nothing is under way any more, given that the guest has followed."""


class Raw:
    """QEMU, asked directly."""

    def __init__(self, images: dict[str, Path], qmp: Session) -> None:
        self._images, self._qmp = images, qmp
        self._disks: list[str] = []
        self._disc = ""

    async def have(self, disks: Sequence[str], disc: str) -> None:
        gone = [each for each in self._disks if each not in disks]
        await asyncio.gather(*(act.unplug(self._qmp, DISK_PREFIX + each) for each in gone))
        for name in gone:
            await self._close(self._disk(name))
        for name in [each for each in disks if each not in self._disks]:
            new = self._disk(name)
            await self._open(new)
            place = disk.scsi_place(1 + SPARES.index(name))
            await self._qmp.execute("device_add", disk.device(new, place))
        if disc != self._disc:
            await self._change(disc)
        self._disks, self._disc = list(disks), disc

    async def _change(self, disc: str) -> None:
        drive, before = {"id": DISK_PREFIX + DRIVE}, self._disc
        if disc:
            await self._open(self._drive(disc))
        await self._qmp.execute("blockdev-open-tray", drive)
        if before:
            await self._qmp.execute("blockdev-remove-medium", drive)
        if disc:
            medium = {**drive, "node-name": self._drive(disc).node}
            await self._qmp.execute("blockdev-insert-medium", medium)
        await self._qmp.execute("blockdev-close-tray", drive)
        if before:
            await self._close(self._drive(before))

    def _disk(self, claim: str) -> Disk:
        image = Image(str(self._images[claim]))
        return Disk(id=DISK_PREFIX + claim, image=image, bus="scsi", serial=claim)

    def _drive(self, claim: str) -> Disk:
        image = Image(str(self._images[claim]))
        return Disk(id=DISK_PREFIX + DRIVE, image=image, kind="cdrom", bus="sata", readonly=True)

    async def _open(self, new: Disk) -> None:
        assert new.image is not None
        with _opened(new.image.path, os.O_RDONLY if new.readonly else os.O_RDWR) as file:
            number = await self._qmp.send_file(file)
        paths = {new.image.path: f"/dev/fdset/{number}"}
        await self._qmp.execute("blockdev-add", disk.blockdev(new, paths))
        await self._qmp.execute("remove-fd", {"fdset-id": number})

    async def _close(self, old: Disk) -> None:
        await self._qmp.execute("blockdev-del", {"node-name": old.node})

    async def settled(self) -> None:
        pass


@contextlib.contextmanager
def _opened(path: str, how: int) -> Iterator[int]:
    file = os.open(path, how | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


class Edited:
    """livevirt, asked by a PATCH of the VM."""

    def __init__(self, target: Target, connection: Connection) -> None:
        self._target, self._connection = target, connection
        self._asked: dict[str, str] = {}

    async def have(self, disks: Sequence[str], disc: str) -> None:
        self._asked = {each: each for each in disks} | ({DRIVE: disc} if disc else {})
        spec = bench_vm(self._asked)["spec"]["template"]["spec"]
        lists = {
            "volumes": spec["volumes"],
            "domain": {"devices": {"disks": spec["domain"]["devices"]["disks"]}},
        }
        body = json.dumps({"spec": {"template": {"spec": lists}}}).encode()
        request = self._target.request("PATCH", f"{VMS}/{NAME}", body, MERGE)
        status, answer = await self._connection.ask(request)
        if status != 200:
            raise RuntimeError(f"status {status}: {answer[:300]!r}")

    async def settled(self) -> None:
        async with asyncio.timeout(SECONDS):
            while await self._attached() != self._asked:  # noqa: ASYNC110 - a watch costs
                await asyncio.sleep(0.05)

    async def _attached(self) -> dict[str, str]:
        """Return what the instance says of its volumes: the claim, or the phase until then."""
        _, body = await self._connection.ask(self._target.request("GET", f"{VMIS}/{NAME}"))
        listed = (json.loads(body).get("status") or {}).get("volumeStatus") or ()
        return {
            each["name"]: each["persistentVolumeClaimInfo"]["claimName"]
            if each["phase"] == "Ready"
            else each["phase"]
            for each in listed
            if "hotplugVolume" in each
        }


# ---------------------------------------------------------------- one turn


@dataclass(frozen=True, slots=True)
class Guest:
    """The guest under test, and the files behind its claims."""

    qmp_socket: str
    accelerator: str
    serial: Serial
    images: dict[str, Path]


@dataclass(slots=True)
class Turn:
    """A guest that is changed one way, step by step."""

    way: Way
    guest: Guest

    async def begin(self) -> None:
        """Make every change once, untimed, from whatever the guest has."""
        await self.have([])
        await self.have(SPARES[:1], RED)
        await self.have([])

    async def have(self, disks: Sequence[str], disc: str = "") -> float:
        """Return how long after it was asked for the guest saw just this."""
        wanted = View(len(disks), disc or "none")
        began = time.perf_counter()
        seen = await self._seen(self.way.have(disks, disc), wanted)
        await self.way.settled()
        await asyncio.sleep(SETTLE)
        return seen - began

    async def _seen(self, asking: Coroutine[Any, Any, None], wanted: View) -> float:
        async with asyncio.TaskGroup() as group:
            group.create_task(asking)
            return await self.guest.serial.until(wanted)


async def changes(turn: Turn) -> dict[str, float]:
    """Make each change once; return how long each took."""
    await turn.begin()
    found = {PLUG: await turn.have(SPARES[:1])}
    await turn.have([])
    for name, disc in ((INJECT, RED), (SWAP, BLUE), (EJECT, "")):
        found[name] = await turn.have([], disc)
    return found


async def floods(turn: Turn) -> dict[int, float]:
    """Plug a few disks at once, then many; return how long that took."""
    await turn.begin()
    found = {}
    for count in (FEW, MANY):
        found[count] = await turn.have(SPARES[:count])
        await turn.have([])
    return found


# ---------------------------------------------------------------- the benchmark


def bench_vm(volumes: dict[str, str] | None = None) -> Object:
    """Return the VM with an empty drive and the watcher in it, and these claims by volume."""
    vm = a_vm(NAME, "256Mi")
    spec = vm["spec"]["template"]["spec"]
    devices = spec["domain"]["devices"]
    spec["volumes"][-1]["cloudInitNoCloud"]["userData"] = WATCHER
    devices["disks"].append({"name": DRIVE, "cdrom": {"bus": "sata"}})
    for name, claim in (volumes or {}).items():
        source = {"claimName": claim, "hotpluggable": True}
        spec["volumes"].append({"name": name, "persistentVolumeClaim": source})
        if name != DRIVE:
            devices["disks"].append({"name": name, "disk": {"bus": "scsi"}})
    return vm


async def fill(host: Host, folder: Path) -> None:
    """Make the claims."""
    for name in DISCS:
        file = folder / f"{name}.img"
        file.write_bytes(f"{name}\n".encode().ljust(1 << 21, b"\0"))
        words = ("volume", "import", file, "--pvc", name, "--data-dir", host.data.root)
        child = await asyncio.create_subprocess_exec(
            BIN / "livevirt", *words, stdout=asyncio.subprocess.DEVNULL
        )
        if await child.wait() != 0:
            raise RuntimeError(f"{name} was not imported")
    for name in SPARES:
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Mi"}},
            },
        }
        await host.client.create(core.CLAIM, claim, SPACE)


async def images(host: Host) -> dict[str, Path]:
    """Return the files behind the claims, all of which were used before."""
    page = await host.client.list(core.CLAIM, SPACE)
    return {
        each["metadata"]["name"]: (
            host.data.root / "volumes" / each["spec"]["volumeName"] / "disk.img"
        )
        for each in page.items
    }


@contextlib.asynccontextmanager
async def running(data: DataDir, folder: Path) -> AsyncIterator[Guest]:
    """Run the guest until the block ends."""
    async with server(data) as (target, host):
        await fill(host, folder)
        await host.start(bench_vm())
        (pod,) = host.pods()
        intent = pod.read_intent()
        assert intent is not None
        machine = intent.machine
        reader, writer = await asyncio.open_unix_connection(machine.serial_socket)
        guest = Guest(machine.qmp_socket, machine.accelerator, Serial(reader), {})
        # The first time a claim is used its file is made, which is no part of attaching it.
        async with Connection(target) as connection:
            turn = Turn(Edited(target, connection), guest)
            await turn.have(SPARES)
            await turn.have([])
        guest.images.update(await images(host))
    try:
        yield guest
    finally:
        writer.close()
    async with server(data) as (_, host):
        await host.remove()


Work = Callable[[Turn], Coroutine[Any, Any, dict[Any, float]]]


async def by_edit(data: DataDir, guest: Guest, work: Work) -> dict[Any, float]:
    """Take a turn with livevirt."""
    async with server(data) as (target, _), Connection(target) as connection:
        return await work(Turn(Edited(target, connection), guest))


async def by_hand(guest: Guest, work: Work) -> dict[Any, float]:
    """Take a turn without it."""
    async with await Session.connect(guest.qmp_socket) as qmp:
        return await work(Turn(Raw(guest.images, qmp), guest))


async def in_turns(
    data: DataDir, guest: Guest, work: Work, count: int
) -> tuple[list[dict[Any, float]], list[dict[Any, float]]]:
    """Do the work both ways, so many times each; return what came of it, edited and raw."""
    edited, raw = [], []
    for number in range(count):
        if number % 2 == 0:
            edited.append(await by_edit(data, guest, work))
            raw.append(await by_hand(guest, work))
        else:
            raw.append(await by_hand(guest, work))
            edited.append(await by_edit(data, guest, work))
    return edited, raw


async def measure(data: DataDir, folder: Path, pairs: int, many: int) -> dict[str, Any]:
    """Take turns; return what each change took both ways."""
    async with running(data, folder) as guest:
        edited, raw = await in_turns(data, guest, changes, pairs)
        flooded, raw_flooded = await in_turns(data, guest, floods, many)
    found: dict[str, Any] = {"accelerator": guest.accelerator, "pairs": pairs}
    for name in CHANGES:
        found[name] = compared([each[name] for each in edited], [each[name] for each in raw])
    for count in (FEW, MANY) if many else ():
        seconds = [each[count] for each in flooded], [each[count] for each in raw_flooded]
        found[f"{count} disks"] = compared(*seconds)
        for way, middle in zip(("edit", "raw"), map(statistics.median, seconds), strict=True):
            found[f"{count} disks"][f"{way}_per_disk_s"] = round(middle / count, 4)
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
        "extra_s": round(middle[0] - middle[1], 3),
    }


def judged(found: dict[str, Any]) -> dict[str, bool]:
    """Return what must hold, and whether it does."""
    required = {
        f"{name}: median <= raw + {MOST_EXTRA * 1000:.0f} ms": found[name]["extra_s"] <= MOST_EXTRA
        for name in CHANGES
    }
    if f"{MANY} disks" in found:
        few, many = (found[f"{count} disks"]["edit_per_disk_s"] for count in (FEW, MANY))
        text = f"a disk of {MANY} in one edit costs <= {MOST_GROWTH} of one of {FEW}"
        required[text] = many <= MOST_GROWTH * few
    return required


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--many", type=int, default=3, help="pairs of many disks at once")
    args = parser.parse_args()
    if ImageStore(default_data_dir() / "images").find(IMAGE) is None:
        print(f"image {IMAGE} is not in the image store; run: make setup", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="lv-") as name:
        root = Path(name)
        root.chmod(0o711)  # QEMU, which has a user of its own, must get through
        data = DataDir(root / "d")
        try:
            found = uvloop.run(measure(data, root, args.pairs, args.many))
        finally:
            end_guests(data)
    required = judged(found)
    print(json.dumps(found | {"required": required}, indent=2))
    return 0 if all(required.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
