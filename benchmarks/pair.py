"""A guest that moves between two QEMUs which are driven by raw QMP.

It has the machine of a guest of livevirt, disks of its own that are as new, and the same user and
cgroups. What a QEMU needs beside itself is there before its clock starts, and the guest runs at the
target as soon as it has come.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crossing import SECONDS, Moved, Serial
from start import renew, spawn

from livevirt.node import cgroups, process
from livevirt.node.intent import Intent
from livevirt.qemu import lifecycle, migration
from livevirt.qemu.cmdline import argv
from livevirt.qemu.errors import Disconnected
from livevirt.qemu.machine import Machine
from livevirt.qemu.migration import Limits, Transfer
from livevirt.qemu.session import Session

RETRY = 0.005  # seconds between attempts to reach a QEMU that is starting


@dataclass(slots=True)
class Place:
    """One of the two QEMUs: what it needs, and its process once it was started."""

    folder: Path
    machine: Machine
    cgroup: cgroups.PodCgroup
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "qemu.log"

    async def connect(self) -> Session:
        """Return a session with it as soon as it listens."""
        assert self.process is not None
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    return await Session.connect(self.machine.qmp_socket)
                except Disconnected:
                    if self.process.poll() is not None:
                        raise RuntimeError(f"QEMU has ended: {self.log.read_text()}") from None
                    await asyncio.sleep(RETRY)

    def end(self) -> None:
        """Leave nothing of it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.cgroup.remove()
        shutil.rmtree(self.folder)


class Pair:
    """The guest, in one of the two."""

    def __init__(self, root: Path, intent: Intent, nodes: Sequence[str], sent: Limits) -> None:
        root.mkdir(mode=0o711)
        self.serial = Serial(root, "*/serial.log")
        self._root, self._limits, self._sent = root, intent.limits, sent
        self._account = process.account(kvm=intent.machine.accelerator == "kvm")
        # Beside the pods of livevirt's nodes: whoever else runs guests there now is no more in the
        # way of one guest than of the other.
        share = (os.cpu_count() or 1) * 1000 // len(nodes)
        self._nodes = [cgroups.Cgroups.discover(name, share) for name in nodes]
        self._numbers = itertools.count()
        self._machine = self._with_own_disks(intent.machine)
        self._place = self._prepare(self._machine)
        self._qmp: Session

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have it run until the block ends."""
        try:
            self._start(self._place)
            self._qmp = await self._place.connect()
            await self.serial.ticks()
            yield
            await self._qmp.close()
        finally:
            self._place.end()

    async def go_on(self) -> None:
        """Have it run."""
        await lifecycle.resume(self._qmp)
        await self.serial.ticks()

    async def stand_still(self) -> None:
        """Have it use no CPU."""
        await lifecycle.pause(self._qmp)

    async def move(self) -> Moved:
        """Move it to a new QEMU; return once the old one is gone."""
        old, before = self._place, self._qmp
        new = self._prepare(replace(self._machine, incoming=True))
        try:
            async with asyncio.TaskGroup() as group:
                crossing = group.create_task(self.serial.crossing())
                began = time.perf_counter()
                self._start(new)
                qmp = await new.connect()
                await migration.listen(qmp, new.machine.migration_socket)
                listening = time.perf_counter()
                await migration.send(before, new.machine.migration_socket, self._sent)
        except BaseException:
            new.end()
            raise
        found = await _sent(before)
        self._place, self._qmp = new, qmp
        await before.close()
        old.end()
        seen = crossing.result()
        return Moved(
            total=seen.arrived - began,
            downtime=seen.arrived - seen.left,
            transferred=found.transferred,
            qemu_downtime_ms=found.downtime_ms,
            reached={"listening": listening - began, "left": seen.left - began},
        )

    def _with_own_disks(self, machine: Machine) -> Machine:
        folder = self._root / "disks"
        folder.mkdir(mode=0o711)
        disks = []
        for disk in machine.disks:
            assert disk.image is not None
            path = folder / Path(disk.image.path).name
            renew(path, Path(disk.image.path), disk.image.backing)
            self._give(path)
            disks.append(replace(disk, image=replace(disk.image, path=str(path))))
        return replace(machine, disks=tuple(disks))

    def _prepare(self, machine: Machine) -> Place:
        number = next(self._numbers)
        folder = self._root / str(number)
        folder.mkdir()
        serial = folder / "serial.log"
        serial.touch()
        self._give(folder)
        self._give(serial)
        node = self._nodes[number % len(self._nodes)]
        cgroup = node.of(f"-by-hand-{os.getpid()}-{number}")
        node.create(cgroup)
        cgroup.apply(self._limits)
        return Place(folder, replace(machine, run_dir=str(folder), serial_log=str(serial)), cgroup)

    def _give(self, path: Path) -> None:
        if self._account is not None:
            os.chown(path, *self._account.owner)

    def _start(self, place: Place) -> None:
        place.process = spawn(argv(place.machine), place.log, place.cgroup, self._account)


async def _sent(qmp: Session) -> Transfer:
    """Return what a QEMU says of a guest that it has sent, once it knows."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = await migration.transfer(qmp)
            if found.status == migration.COMPLETED:
                return found
            await asyncio.sleep(RETRY)
