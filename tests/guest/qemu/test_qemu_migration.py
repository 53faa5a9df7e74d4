"""A guest goes from one real QEMU to another, with whatever came and went since its start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from livevirt.qemu import lifecycle, migration
from livevirt.qemu.act import act
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.machine import Cpu, Machine, Memory
from livevirt.qemu.observe import observe
from livevirt.qemu.plan import MachineSnapshot, UnplugDisk
from livevirt.qemu.session import Session

from ...machine_goal import MachineGoal, plan

pytestmark = pytest.mark.guest
MIB = 1024 * 1024


def an_image(folder: Path, name: str) -> Image:
    path = folder / name
    path.write_bytes(b"\0" * MIB)
    return Image(str(path))


async def bring(wanted: MachineGoal, machine: Machine, qmp: Session) -> None:
    for step in plan(wanted, MachineSnapshot(machine, await observe(qmp))):
        await act(step, qmp)


async def described(machine: Machine, qmp: Session, *known: Disk) -> Machine:
    """Return the machine as it stands, elsewhere, waiting for the guest."""
    seen = await observe(qmp)
    found = migration.as_it_stands(machine, seen, await migration.places(qmp, seen), known)
    return elsewhere(found)


def elsewhere(machine: Machine) -> Machine:
    run = Path(machine.run_dir + "-t")
    run.mkdir()
    moved = replace(machine, run_dir=str(run), serial_log=str(run / "log"))
    return replace(moved, incoming=True, paused=True)


async def until(question: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while True:
            if await question():
                return
            await asyncio.sleep(0.02)


async def sent(source: Session, target: Session, machine: Machine) -> None:
    await migration.listen(target, machine.migration_socket)
    await migration.listen(target, machine.migration_socket)  # a second time changes nothing
    await migration.send(source, machine.migration_socket, migration.Limits())
    await until(lambda: _has_status(source, migration.COMPLETED))
    await until(lambda: _arrived(target))


async def _has_status(qmp: Session, status: str) -> bool:
    return (await migration.transfer(qmp)).status == status


async def _arrived(qmp: Session) -> bool:
    return (await observe(qmp)).run_state != "inmigrate"


async def test_cpus_memory_and_disks_that_came_and_went_are_on_the_other_machine(
    a_machine, start, run_dir: Path
) -> None:
    boot = Disk(id="ua-root", image=an_image(run_dir, "root.img"), boot_index=1)
    first = Disk(id="ua-first", image=an_image(run_dir, "first.img"), bus="scsi")
    machine = a_machine(
        cpu=Cpu(model="max", sockets=1, max_sockets=3),
        memory=Memory(boot=64 * MIB, max=128 * MIB),
        disks=(boot, first),
        usb=True,
        spare_ports=3,
    )
    stick = Disk(id="ua-stick", image=an_image(run_dir, "a.iso"), kind="cdrom", bus="usb")
    fast = Disk(id="ua-fast", image=an_image(run_dir, "fast.img"), bus="virtio", serial="F")
    slow = Disk(id="ua-slow", image=an_image(run_dir, "slow.img"), bus="scsi", serial="S")
    async with start(machine) as source:
        await lifecycle.resume(source.qmp)
        everything = (boot, first, slow, stick, fast)
        size = MachineGoal(sockets=2, memory=96 * MIB, disks=everything)
        await bring(size, machine, source.qmp)
        await act(UnplugDisk(first.id, first.node), source.qmp)  # its LUN stays empty
        before = await observe(source.qmp)
        target = await described(machine, source.qmp, stick, fast, slow)
        async with start(target) as other:
            await sent(source.qmp, other.qmp, target)
            after = await observe(other.qmp)
            assert (after.sockets, after.memory.requested) == (2, 32 * MIB)
            assert after.devices == before.devices
            assert sorted(after.drives, key=lambda drive: drive.id) == sorted(
                before.drives, key=lambda drive: drive.id
            )
            assert after.free_ports == before.free_ports
            assert after.run_state == "paused"  # nothing runs before it is told to
            await lifecycle.resume(other.qmp)
            assert (await observe(other.qmp)).run_state == "running"

            # The images are the other's now: who was left cannot go on beside it.
            assert (await observe(source.qmp)).run_state == "postmigrate"
            with pytest.raises(CommandFailed, match="lock"):
                await lifecycle.resume(source.qmp)

            # And a second move, from the machine that was moved to.
            third = await described(target, other.qmp, stick, fast, slow)
            async with start(third) as last:
                await sent(other.qmp, last.qmp, third)
                assert (await observe(last.qmp)).devices == before.devices


async def test_given_the_other_machine_dies_then_the_guest_goes_on_where_it_was(
    a_machine, start, run_dir: Path
) -> None:
    machine = a_machine(disks=(Disk(id="ua-root", image=an_image(run_dir, "root.img")),))
    async with start(machine) as source:
        await lifecycle.resume(source.qmp)
        target = await described(machine, source.qmp)
        async with start(target) as other:
            await sent(source.qmp, other.qmp, target)
        # The guest had been sent whole and never ran there, so it is as it was when it left.
        assert (await observe(source.qmp)).run_state == "postmigrate"
        await lifecycle.resume(source.qmp)
        assert (await observe(source.qmp)).run_state == "running"


async def test_given_the_other_machine_dies_while_it_receives_then_the_guest_never_stopped(
    a_machine, start
) -> None:
    machine = a_machine()
    async with start(machine) as source:
        await lifecycle.resume(source.qmp)
        target = await described(machine, source.qmp)
        async with start(target) as other:
            await migration.listen(other.qmp, target.migration_socket)
            crawling = migration.Limits(bandwidth=1024)
            await migration.send(source.qmp, target.migration_socket, crawling)
            await until(lambda: _has_status(source.qmp, "active"))
            found = await migration.transfer(source.qmp)
            assert found.remaining > 0
        await until(lambda: _has_status(source.qmp, "failed"))
        assert (await observe(source.qmp)).run_state == "running"


def test_a_drive_whose_image_nobody_knows_cannot_be_described(a_machine, run_dir: Path) -> None:
    from livevirt.qemu.observe import Drive, MemoryState, Observed

    machine = a_machine()
    seen = Observed("running", (), MemoryState(64 * MIB), drives=(Drive("ua-x", "n-ua-x-1"),))
    with pytest.raises(migration.Undescribed, match="ua-x"):
        migration.as_it_stands(machine, seen, migration.Places(), ())
