"""QEMU itself takes every command line we write."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.machine import Cpu, Feature, Machine, Memory, Nic, Smbios
from livevirt.vm.config.settings import Defaults
from livevirt.vm.spec.sizes import Topology, max_sockets

pytestmark = pytest.mark.guest
MIB = 1024 * 1024


def an_image(folder: Path, name: str) -> Image:
    path = folder / name
    path.write_bytes(b"\0" * MIB)
    return Image(str(path))


async def test_a_machine_with_one_of_everything_starts(a_machine, start, run_dir) -> None:
    machine = a_machine(
        name='o\'brien, "the" guest=1',
        machine_type="pc-q35-7.2",
        cpu=Cpu(
            model="Nehalem",
            sockets=2,
            cores=2,
            threads=2,
            max_sockets=4,
            features=(Feature("sse4.2", on=False), Feature("aes")),
        ),
        memory=Memory(boot=100_000_000, max=1_000_000_000),
        disks=(
            Disk(id="ua-root", image=an_image(run_dir, "a,b.img"), boot_index=1, serial="x,y=1"),
            Disk(id="ua-scsi", image=an_image(run_dir, "scsi"), bus="scsi", on_error="enospace"),
            Disk(id="ua-sata", image=an_image(run_dir, "sata"), bus="sata", on_error="stop"),
            Disk(id="ua-usb", image=an_image(run_dir, "usb"), bus="usb", on_error="stop"),
            Disk(id="ua-share", image=an_image(run_dir, "share"), bus="scsi", shareable=True),
            Disk(id="ua-cd", image=an_image(run_dir, "iso"), kind="cdrom", bus="sata"),
            Disk(id="ua-empty", image=None, kind="cdrom", bus="sata", on_error="stop"),
            Disk(id="ua-scsicd", image=None, kind="cdrom", bus="scsi", on_error="stop"),
            Disk(id="ua-usbcd", image=None, kind="cdrom", bus="usb", on_error="stop"),
            Disk(id="ua-late", image=None, kind="cdrom", bus="sata", slot=7),
        ),
        nics=(
            Nic(id="nic-default", mac="02:00:00:00:00:01"),
            Nic(id="nic-old", mac="02:00:00:00:00:02", model="e1000", boot_index=2),
        ),
        smbios=Smbios(manufacturer="A, B=C", serial="1"),
        graphics=True,
        rtc="2026-01-02T03:04:05",
        usb=True,
        usb_slots=4,
        spare_ports=9,
    )
    async with start(machine) as guest:
        assert (await guest.qmp.execute("query-name"))["name"] == machine.name
        assert (await guest.qmp.execute("query-uuid"))["UUID"] == machine.uuid
        assert (await guest.qmp.execute("query-status"))["status"] == "prelaunch"
        assert len(await guest.qmp.execute("query-cpus-fast")) == 8
        serial = {"path": "/machine/peripheral/ua-root", "property": "serial"}
        assert await guest.qmp.execute("qom-get", serial) == "x,y=1"
        for path in (machine.vnc_socket, *map(machine.usb_socket, range(4))):
            _, writer = await asyncio.open_unix_connection(path)
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize(
    "chosen", [Topology(64), Topology(73), Topology(21, 3), Topology(16, 2, 3)], ids=str
)
async def test_a_machine_with_the_most_sockets_that_are_filled_in_starts(
    a_machine, start, chosen: Topology
) -> None:
    most, cores, threads = max_sockets(0, chosen, Defaults()), chosen.cores, chosen.threads
    # One of them at boot is enough: it is the maximum that QEMU may not take.
    cpu = Cpu(model="max", sockets=1, cores=cores, threads=threads, max_sockets=most)
    async with start(a_machine(cpu=cpu)) as guest:
        slots = await guest.qmp.execute("query-hotpluggable-cpus")
    assert len(slots) == most * cores * threads


async def test_the_firmware_gets_past_thirty_ports(a_machine, start, run_dir: Path) -> None:
    # mov dx, 604; mov ax, 2000; out dx, ax: the boot sector switches the machine off.
    poweroff = bytes.fromhex("ba0406 b80020 ef f4")
    path = run_dir / "boot.img"
    path.write_bytes((poweroff.ljust(510, b"\0") + b"\x55\xaa").ljust(MIB, b"\0"))
    disk = Disk(id="ua-boot", image=Image(str(path)), boot_index=1)
    async with start(a_machine(spare_ports=30, disks=(disk,))) as guest:
        with guest.qmp.listen("SHUTDOWN") as events:
            await guest.qmp.execute("cont")
            await anext(events)


async def test_a_target_waits_for_a_migration(
    a_machine: Callable[..., Machine], start, run_dir: Path
) -> None:
    async with start(a_machine(incoming=True, paused=False)) as guest:
        assert (await guest.qmp.execute("query-status"))["status"] == "inmigrate"
