"""A disk copied by a real QEMU; the machine is stopped before its first instruction."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from livevirt.qemu import disk as disks
from livevirt.qemu.act import act
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.machine import Machine
from livevirt.qemu.mirror import JOB_EVENT, EndCopy, FinishCopy, StartCopy
from livevirt.qemu.observe import Observed, observe
from livevirt.qemu.plan import MachineSnapshot, Step
from livevirt.qemu.plan import disks as plan
from livevirt.qemu.session import Session

pytestmark = pytest.mark.guest
MIB = 1024 * 1024


def an_image(folder: Path, name: str, size: int = 4 * MIB, *, filled: bool = False) -> Image:
    path = folder / name
    path.write_bytes(os.urandom(size) if filled else b"")
    os.truncate(path, size)
    return Image(str(path))


def a_disk(folder: Path, bus: str = "virtio") -> Disk:
    return Disk(id="ua-data", image=an_image(folder, "old", filled=True), bus=bus)  # type: ignore[arg-type]


def content(disk: Disk) -> bytes:
    assert disk.image is not None
    return Path(disk.image.path).read_bytes()


async def until_ready(qmp: Session) -> Observed:
    with qmp.listen(JOB_EVENT) as events:
        while not (now := await observe(qmp)).copies[0].ready:
            await anext(events)
    return now


async def follow(wanted: Disk, machine: Machine, qmp: Session, *, switch: bool) -> list[Step]:
    """Do what the plan says, twice over, until there is nothing to do; return what it was."""
    done: list[Step] = []
    while steps := plan(
        (wanted,), MachineSnapshot(machine, await observe(qmp)), copied={wanted.id: switch}
    ):
        for step in steps:
            await act(step, qmp)
            if not isinstance(step, StartCopy):
                await act(step, qmp)  # a step done again changes nothing
            done.append(step)
    return done


@pytest.mark.parametrize("bus", ["virtio", "scsi"])
async def test_a_disk_of_the_start_is_copied_and_the_drive_goes_over(
    a_machine, start, run_dir: Path, bus: str
) -> None:
    old = a_disk(run_dir, bus)
    new = replace(old, image=an_image(run_dir, "new", 6 * MIB))
    machine = a_machine(disks=(old,))
    async with start(machine) as guest:
        steps = await follow(new, machine, guest.qmp, switch=False)
        assert [type(step) for step in steps] == [StartCopy]
        now = await until_ready(guest.qmp)
        assert (now.drives[0].node, now.copies[0].percent) == (old.node, 100)
        await follow(new, machine, guest.qmp, switch=True)
        now = await observe(guest.qmp)
        assert (now.drives[0].node, now.drives[0].size) == (new.node, 4 * MIB)
        assert (now.copies, now.idle_nodes) == ((), ())
    assert content(new) == content(old)


async def test_a_copy_ends_half_way_and_begins_again(a_machine, start, run_dir: Path) -> None:
    old = a_disk(run_dir)
    new = replace(old, image=an_image(run_dir, "new"))
    machine = a_machine(disks=(old,))
    async with start(machine) as guest:
        await follow(new, machine, guest.qmp, switch=False)
        steps = await follow(old, machine, guest.qmp, switch=False)
        assert EndCopy(str(new.node)) in steps
        now = await observe(guest.qmp)
        assert (now.drives[0].node, now.copies, now.idle_nodes) == (old.node, (), ())
        await guest.qmp.execute("blockdev-add", disks.blockdev(new))  # as one who died then
        await follow(new, machine, guest.qmp, switch=False)
        await until_ready(guest.qmp)


async def test_a_target_that_is_too_small_is_refused_and_closed(
    a_machine, start, run_dir: Path
) -> None:
    old = a_disk(run_dir)
    new = replace(old, image=an_image(run_dir, "new", MIB))
    async with start(a_machine(disks=(old,))) as guest:
        step = StartCopy(new, str(old.node), 4 * MIB)
        with pytest.raises(CommandFailed, match="holds 1048576 bytes and the disk has 4194304"):
            await act(step, guest.qmp)
        assert (await observe(guest.qmp)).idle_nodes == ()


async def test_a_target_that_is_open_elsewhere_is_refused_and_closed(
    a_machine, start, run_dir: Path
) -> None:
    old, image = a_disk(run_dir), an_image(run_dir, "new")
    new = replace(old, image=image)
    other = Disk(id="ua-other", image=image)
    async with start(a_machine(disks=(old, other))) as guest:
        with pytest.raises(CommandFailed, match='Failed to get "'):
            await act(StartCopy(new, str(old.node), 4 * MIB), guest.qmp)
        assert (await observe(guest.qmp)).idle_nodes == ()


async def test_what_is_not_there_is_neither_finished_nor_ended(
    a_machine, start, run_dir: Path
) -> None:
    old = a_disk(run_dir)
    async with start(a_machine(disks=(old,))) as guest:
        await act(FinishCopy(old), guest.qmp)
        await act(EndCopy("n-nothing"), guest.qmp)
