"""Plans followed on a real QEMU; the machine is stopped before its first instruction."""

import asyncio
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from livevirt.qemu import disk as disks
from livevirt.qemu import lifecycle
from livevirt.qemu.act import act, forget_files
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.errors import CommandFailed, Disconnected, UnplugRefused
from livevirt.qemu.machine import Cpu, Machine, Memory
from livevirt.qemu.observe import Observed, observe
from livevirt.qemu.plan import (
    Blocked,
    ChangeMedium,
    CloseImage,
    EndThread,
    MachineSnapshot,
    PlugCpu,
    PlugDisk,
    RequestMemory,
    Step,
    UnplugDisk,
)
from livevirt.qemu.session import Session

from ...machine_goal import MachineGoal, plan

pytestmark = pytest.mark.guest
MIB = 1024 * 1024


def an_image(folder: Path, name: str, size: int = MIB) -> Image:
    path = folder / name
    path.write_bytes(b"\0" * size)
    return Image(str(path))


async def follow(
    wanted: MachineGoal, machine: Machine, qmp: Session
) -> tuple[list[Step], Observed]:
    """Do what the plan says, twice over, and return it and what came of it."""
    steps = plan(wanted, MachineSnapshot(machine, await observe(qmp)))
    for step in steps:
        await act(step, qmp)
    for step in steps:
        await act(step, qmp)  # a step done again changes nothing
    return steps, await observe(qmp)


async def test_cpus_and_memory_grow_to_what_is_wanted_and_then_there_is_nothing_to_do(
    a_machine, start
) -> None:
    machine = a_machine(
        cpu=Cpu(model="max", sockets=2, cores=2, max_sockets=4),
        memory=Memory(boot=64 * MIB, max=256 * MIB),
    )
    async with start(machine) as guest:
        before = await observe(guest.qmp)
        assert before.sockets == 2
        assert [slot.id for slot in before.cpus if slot.present] == [
            None,
            None,
            "cpu-1-0-0",
            "cpu-1-1-0",
        ]
        assert (before.memory.boot, before.memory.headroom) == (64 * MIB, 192 * MIB)

        wanted = MachineGoal(sockets=4, memory=128 * MIB, paused=True)
        steps, after = await follow(wanted, machine, guest.qmp)
        assert [type(step) for step in steps] == [PlugCpu] * 4 + [RequestMemory]
        assert after.sockets == 4
        # Nobody in the guest has taken it yet, and so it is not called plugged.
        assert (after.memory.requested, after.memory.plugged) == (64 * MIB, 0)
        assert plan(wanted, MachineSnapshot(machine, after)) == []


@pytest.mark.parametrize("bus", ["scsi", "virtio"])
async def test_a_disk_is_plugged_and_unplugged_and_its_image_let_go(
    a_machine, start, run_dir: Path, bus
) -> None:
    machine = a_machine(spare_ports=1)
    disk = Disk(id="ua-data", image=an_image(run_dir, "data.img"), bus=bus, serial="S1")
    async with start(machine) as guest:
        wanted = MachineGoal(sockets=1, memory=64 * MIB, disks=(disk,), paused=True)
        steps, plugged = await follow(wanted, machine, guest.qmp)
        assert [type(step) for step in steps] == [PlugDisk]
        [drive] = plugged.drives
        assert (drive.id, drive.node, drive.size) == ("ua-data", disk.node, MIB)
        assert plugged.free_ports == (() if bus == "virtio" else ("port3",))
        assert plan(wanted, MachineSnapshot(machine, plugged)) == []
        if bus == "virtio":
            return  # a guest must consent, and there is none

        gone = MachineGoal(sockets=1, memory=64 * MIB, paused=True)
        steps, unplugged = await follow(gone, machine, guest.qmp)
        assert steps == [UnplugDisk("ua-data", disk.node)]
        assert unplugged.drives == ()
        assert unplugged.idle_nodes == ()


@pytest.mark.parametrize("bus", ["scsi", "usb"])
async def test_a_drive_is_plugged_empty_filled_and_taken_away_with_its_medium(
    a_machine, start, run_dir: Path, bus
) -> None:
    machine = a_machine(usb=True)
    drive = Disk(id="ua-cd", image=None, kind="cdrom", bus=bus)
    full = replace(drive, image=an_image(run_dir, "disc.iso"))
    async with start(machine) as guest:
        await lifecycle.resume(guest.qmp)  # a stopped QEMU keeps descriptors for later
        wanted = MachineGoal(sockets=1, memory=64 * MIB, disks=(drive,))
        steps, plugged = await follow(wanted, machine, guest.qmp)
        assert [type(step) for step in steps] == [PlugDisk]
        assert plugged.drive("ua-cd").node is None

        wanted = replace(wanted, disks=(full,))
        steps, filled = await follow(wanted, machine, guest.qmp)
        assert steps == [ChangeMedium(full)]
        assert filled.drive("ua-cd").node == full.node
        assert plan(wanted, MachineSnapshot(machine, filled)) == []

        _, gone = await follow(replace(wanted, disks=()), machine, guest.qmp)
        assert (gone.drives, gone.idle_nodes) == ((), ())
        assert full.image.path not in files_of(guest.process)


async def test_given_a_usb_drive_was_plugged_by_halves_then_the_next_plan_ends_it(
    a_machine, start
) -> None:
    machine = a_machine(usb=True)
    drive = Disk(id="ua-cd", image=None, kind="cdrom", bus="usb")
    async with start(machine) as guest:
        for device in (disks.bridge(drive), disks.device(drive, disks.usb_place(drive))):
            await guest.qmp.execute("device_add", device)
        assert (await observe(guest.qmp)).drives == ()  # the guest does not see it either
        wanted = MachineGoal(sockets=1, memory=64 * MIB, disks=(drive,), paused=True)
        _, after = await follow(wanted, machine, guest.qmp)
        assert [each.id for each in after.drives] == ["ua-cd"]


async def test_given_a_session_broke_off_then_the_next_closes_the_files_it_had_handed_over(
    a_machine, start, run_dir: Path
) -> None:
    machine = a_machine()
    disk = Disk(id="ua-data", image=an_image(run_dir, "data.img"), bus="scsi")
    async with start(machine) as guest:
        await lifecycle.resume(guest.qmp)
        file = os.open(disk.image.path, os.O_RDWR)
        number = await guest.qmp.send_file(file)
        os.close(file)
        opened = {disk.image.path: f"/dev/fdset/{number}"}
        await guest.qmp.execute("blockdev-add", disks.blockdev(disk, opened))
        await guest.qmp.close()
        async with await Session.connect(machine.qmp_socket) as qmp:
            await forget_files(qmp)
            wanted = MachineGoal(sockets=1, memory=64 * MIB, disks=(disk,))
            await follow(wanted, machine, qmp)
            await follow(replace(wanted, disks=()), machine, qmp)
            assert disk.image.path not in files_of(guest.process)


async def test_a_disk_with_another_image_goes_and_comes_again(
    a_machine, start, run_dir: Path
) -> None:
    machine = a_machine()
    first = Disk(id="ua-data", image=an_image(run_dir, "one.img"), bus="scsi")
    second = replace(first, image=an_image(run_dir, "two.img"))
    async with start(machine) as guest:
        wanted = MachineGoal(sockets=1, memory=64 * MIB, disks=(first,), paused=True)
        await follow(wanted, machine, guest.qmp)
        wanted = replace(wanted, disks=(second,))
        for kind in (UnplugDisk, PlugDisk):
            steps, after = await follow(wanted, machine, guest.qmp)
            assert [type(step) for step in steps] == [kind]
        assert after.drive("ua-data").node == second.node
        assert after.idle_nodes == ()


async def test_a_plugged_overlay_is_opened_for_qemu_and_closed_with_the_disk(
    a_machine, start, run_dir: Path
) -> None:
    base, overlay = an_image(run_dir, "base"), run_dir / "overlay"
    create = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base.path, overlay]
    await asyncio.to_thread(subprocess.run, create, check=True)
    disk = Disk(id="ua-o", image=Image(str(overlay), "qcow2", backing=base), bus="scsi")
    machine = a_machine()
    async with start(machine) as guest:
        await lifecycle.resume(guest.qmp)  # a stopped QEMU keeps descriptors for later
        wanted = MachineGoal(sockets=1, memory=64 * MIB, disks=(disk,))
        _, after = await follow(wanted, machine, guest.qmp)
        assert after.drive("ua-o").size == MIB
        assert {base.path, str(overlay)} <= files_of(guest.process)

        await follow(replace(wanted, disks=()), machine, guest.qmp)
        assert not {base.path, str(overlay)} & files_of(guest.process)
        assert await guest.qmp.execute("query-fdsets") == []


def files_of(process: subprocess.Popen[bytes]) -> set[str]:
    return {os.readlink(entry) for entry in Path(f"/proc/{process.pid}/fd").iterdir()}


async def test_disks_take_the_free_places_and_the_one_too_many_is_told(
    a_machine, start, run_dir: Path
) -> None:
    boot = Disk(id="ua-boot", image=an_image(run_dir, "boot"), bus="scsi", slot=1)
    machine = a_machine(spare_ports=2, disks=(boot,))
    more = tuple(
        Disk(id=f"ua-{bus}{n}", image=an_image(run_dir, f"{bus}{n}"), bus=bus)
        for bus in ("scsi", "virtio")
        for n in range(3)
    )
    async with start(machine) as guest:
        wanted = MachineGoal(sockets=1, memory=64 * MIB, disks=(boot, *more), paused=True)
        steps, after = await follow(wanted, machine, guest.qmp)
        assert {d.id: d.lun for d in after.drives if d.lun is not None} == {
            "ua-boot": 1,
            "ua-scsi0": 0,
            "ua-scsi1": 2,
            "ua-scsi2": 3,
        }
        assert after.free_ports == ()
        assert steps[-1] == Blocked("disk", "ua-virtio2", "no PCIe port is free")


async def test_an_image_that_cannot_be_locked_leaves_nothing_behind(
    a_machine, start, run_dir: Path
) -> None:
    disk = Disk(id="ua-data", image=an_image(run_dir, "data.img"), bus="scsi")
    machine = a_machine()
    async with start(a_machine(disks=(disk,))), start(machine) as second:
        with pytest.raises(CommandFailed, match="lock"):
            await follow(
                MachineGoal(sockets=1, memory=64 * MIB, disks=(disk,), paused=True),
                machine,
                second.qmp,
            )
        assert (await observe(second.qmp)).idle_nodes == ()


NEEDY = {
    "a disk with a thread of its own": Disk(
        id="ua-x", image=Image("/missing"), io_thread=disks.own_thread("ua-x")
    ),
    "a drive behind a bridge": Disk(id="ua-x", image=Image("/missing"), kind="cdrom", bus="usb"),
}


@pytest.mark.parametrize("disk", NEEDY.values(), ids=NEEDY)
async def test_an_image_that_cannot_be_opened_leaves_nothing_behind(
    a_machine, start, disk: Disk
) -> None:
    machine = a_machine(usb=True, spare_ports=1)
    wanted = MachineGoal(sockets=1, memory=64 * MIB, disks=(disk,), paused=True)
    async with start(machine) as guest:
        before = await observe(guest.qmp)
        with pytest.raises(CommandFailed, match="No such file"):
            await follow(wanted, machine, guest.qmp)
        assert await observe(guest.qmp) == before


async def test_given_a_disk_went_late_then_its_image_and_its_thread_go_after_it(
    a_machine, start, run_dir: Path
) -> None:
    machine = a_machine(spare_ports=1)
    image, thread = an_image(run_dir, "data.img"), disks.own_thread("ua-data")
    disk = Disk(id="ua-data", image=image, io_thread=thread)
    wanted = MachineGoal(sockets=1, memory=64 * MIB, disks=(disk,), paused=True)
    async with start(machine) as guest:
        await follow(wanted, machine, guest.qmp)
        assert [each["id"] for each in await guest.qmp.execute("query-iothreads")] == [thread]
        with guest.qmp.listen("DEVICE_DELETED") as events:
            await guest.qmp.execute("device_del", {"id": "ua-data"})
            await guest.qmp.execute("system_reset")  # with which the guest has let go
            async for event in events:
                if event.data.get("device") == "ua-data":
                    break
        steps, after = await follow(replace(wanted, disks=()), machine, guest.qmp)
        assert steps == [CloseImage(disk.node), EndThread(thread)]
        assert after.idle_nodes == ()
        assert await guest.qmp.execute("query-iothreads") == []


@pytest.mark.parametrize("parts", [1, 2], ids=["the bridge", "bridge and drive"])
async def test_given_a_usb_drive_was_plugged_by_halves_and_is_not_wanted_then_it_goes(
    a_machine, start, parts: int
) -> None:
    machine = a_machine(usb=True)
    drive = Disk(id="ua-cd", image=None, kind="cdrom", bus="usb")
    devices = [disks.bridge(drive), disks.device(drive, disks.usb_place(drive))]
    async with start(machine) as guest:
        before = await observe(guest.qmp)
        for device in devices[:parts]:
            await guest.qmp.execute("device_add", device)
        wanted = MachineGoal(sockets=1, memory=64 * MIB, paused=True)
        steps, after = await follow(wanted, machine, guest.qmp)
        assert steps == [UnplugDisk("ua-cd", None)]
        assert after == before


@pytest.mark.parametrize("bus", ["sata", "scsi"])
async def test_a_medium_is_injected_swapped_and_ejected(
    a_machine, start, run_dir: Path, bus
) -> None:
    def drive(image: Image | None) -> Disk:
        return Disk(id="ua-cd", image=image, kind="cdrom", bus=bus)

    media = [(an_image(run_dir, "one", 2048), 2048), (an_image(run_dir, "two", 4096), 4096)]
    machine = a_machine(disks=(drive(None),))
    async with start(machine) as guest:
        for image, size in [*media, (None, 0)]:
            wanted = MachineGoal(sockets=1, memory=64 * MIB, disks=(drive(image),), paused=True)
            steps, after = await follow(wanted, machine, guest.qmp)
            assert steps == [ChangeMedium(drive(image))]
            [found] = after.drives
            assert found.node == drive(image).node
            assert found.size == size
            assert not found.tray_open
            assert after.idle_nodes == ()
            assert plan(wanted, MachineSnapshot(machine, after)) == []


def reset_after_opening(
    qmp: Session, openings: set[int], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Reset the machine, which closes its trays, after some openings; return the openings seen."""
    execute, opened = qmp.execute, []

    async def closed() -> None:
        # QEMU sends no event for it.
        while (await observe(qmp)).drive("ua-cd").tray_open:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def resetting(command: str, arguments: Mapping[str, object] | None = None) -> Any:
        answer = await execute(command, arguments)
        if command == "blockdev-open-tray":
            opened.append(command)
            if len(opened) in openings:
                await execute("system_reset")
                await asyncio.wait_for(closed(), 10)
        return answer

    monkeypatch.setattr(qmp, "execute", resetting)
    return opened


@pytest.mark.parametrize("openings", [{1}, {2}, {1, 2, 4}])
async def test_given_the_guest_closes_the_tray_meanwhile_then_the_medium_is_swapped_all_the_same(
    a_machine, start, run_dir: Path, monkeypatch, openings
) -> None:
    old = Disk(id="ua-cd", image=an_image(run_dir, "old"), kind="cdrom", bus="scsi")
    new = replace(old, image=an_image(run_dir, "new"))
    async with start(a_machine(disks=(old,))) as guest:
        opened = reset_after_opening(guest.qmp, openings, monkeypatch)
        await act(ChangeMedium(new), guest.qmp)
        [found] = (await observe(guest.qmp)).drives
        assert (found.node, found.tray_open) == (new.node, False)
        assert len(opened) == 2 + len(openings)


async def test_a_missing_image_leaves_the_old_medium_in(a_machine, start, run_dir: Path) -> None:
    old = Disk(id="ua-cd", image=an_image(run_dir, "old"), kind="cdrom", bus="sata")
    new = Disk(id="ua-cd", image=Image(str(run_dir / "missing")), kind="cdrom", bus="sata")
    async with start(a_machine(disks=(old,))) as guest:
        with pytest.raises(CommandFailed, match="No such file"):
            await act(ChangeMedium(new), guest.qmp)
        assert (await observe(guest.qmp)).drive("ua-cd").node == old.node


async def test_a_forgotten_image_is_closed(a_machine, start, run_dir: Path) -> None:
    disk = Disk(id="ua-data", image=an_image(run_dir, "data.img"), bus="scsi")
    machine = a_machine(disks=(disk,))
    async with start(machine) as guest:
        with guest.qmp.listen("DEVICE_DELETED") as events:
            await guest.qmp.execute("device_del", {"id": "ua-data"})
            await anext(events)
        wanted = MachineGoal(sockets=1, memory=64 * MIB, paused=True)
        steps, after = await follow(wanted, machine, guest.qmp)
        assert steps == [CloseImage(disk.node)]
        assert after.idle_nodes == ()


async def test_unplugging_fails_at_once_when_qemu_dies(a_machine, start, run_dir: Path) -> None:
    disk = Disk(id="ua-data", image=an_image(run_dir, "data.img"), bus="virtio")
    machine = a_machine(disks=(disk,))
    async with start(machine) as guest:
        unplugging = asyncio.create_task(act(UnplugDisk("ua-data", disk.node), guest.qmp))
        await observe(guest.qmp)  # the request is on its way before this is answered
        guest.process.kill()
        with pytest.raises((Disconnected, UnplugRefused)) as caught:
            await unplugging
        assert caught.type is Disconnected
