"""How a machine ends, seen on a guest of one boot sector."""

import asyncio
from pathlib import Path

import pytest

from livevirt.qemu import lifecycle
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.lifecycle import Standing, standing
from livevirt.qemu.machine import Machine

pytestmark = pytest.mark.guest

# mov dx, 604; mov ax, 2000; out dx, ax: what ACPI calls S5, at the port SeaBIOS gives it on q35.
POWEROFF = bytes.fromhex("ba0406 b80020 ef f4")

# Goes to protected mode, reads where the firmware put the memory of PCI device 0:1e.0, which is the
# panic device, and writes 1 there.
PANIC = bytes.fromhex(
    "fa31c08ed80f0116507c0f20c00c010f22c0ea177c080066b810008ed8b810f0"
    "008066baf80cef66bafc0ced24f0c60001f4ebfd0f1f40000000000000000000"
    "ffff0000009bcf00ffff00000093cf001700387c0000"
)


def a_boot_disk(folder: Path, code: bytes) -> Disk:
    path = folder / "boot.img"
    path.write_bytes((code.ljust(510, b"\0") + b"\x55\xaa").ljust(1024 * 1024, b"\0"))
    return Disk(id="ua-boot", image=Image(str(path)), boot_index=1)


async def test_given_a_guest_powers_off_then_qemu_stays_says_so_and_can_be_quit(
    a_machine, start, run_dir
) -> None:
    machine = a_machine(disks=(a_boot_disk(run_dir, POWEROFF),))
    async with start(machine) as guest:
        with guest.qmp.listen("SHUTDOWN", "STOP") as events:
            await lifecycle.resume(guest.qmp)
            shutdown = await anext(events)
            await anext(events)
        state = (await guest.qmp.execute("query-status"))["status"]
        assert standing(state, shutdown) == Standing("shutdown", "guest-shutdown", True)
        assert standing(state) == Standing("shutdown", "shutdown", None)
        assert standing(state).ended

        await lifecycle.quit(guest.qmp)
        assert await asyncio.to_thread(guest.process.wait, 60) == 0


async def test_given_a_guest_panics_then_qemu_stays_and_says_so(a_machine, start, run_dir) -> None:
    machine = a_machine(disks=(a_boot_disk(run_dir, PANIC),))
    async with start(machine) as guest:
        with guest.qmp.listen("GUEST_PANICKED", "STOP") as events:
            await lifecycle.resume(guest.qmp)
            assert (await anext(events)).data["action"] == "pause"
            await anext(events)
        assert await how_it_stands(guest.qmp) == Standing("panicked", "guest-panicked", True)


async def test_a_paused_machine_resumes_and_resets(a_machine, start) -> None:
    async with start(a_machine(paused=False)) as guest:
        await lifecycle.pause(guest.qmp)
        assert await how_it_stands(guest.qmp) == Standing("paused", "paused")
        await lifecycle.pause(guest.qmp)
        await lifecycle.resume(guest.qmp)
        await lifecycle.resume(guest.qmp)
        with guest.qmp.listen("RESET") as events:
            await lifecycle.reset(guest.qmp)
            await anext(events)
        assert (await how_it_stands(guest.qmp)).condition == "running"


async def how_it_stands(qmp) -> Standing:
    return standing((await qmp.execute("query-status"))["status"])


async def test_the_serial_console_takes_one_client_at_a_time_and_is_always_logged(
    a_machine, start, run_dir
) -> None:
    # Writes ! to the serial port, then every byte it receives.
    echo = bytes.fromhex("bafd03 ec a801 74fb baf803 ec ee ebf1")
    bang = bytes.fromhex("baf803 b021 ee")
    machine = a_machine(disks=(a_boot_disk(run_dir, bang + echo),))
    async with start(machine) as guest:
        await lifecycle.resume(guest.qmp)
        await logged(machine, b"!")

        reader, writer = await asyncio.open_unix_connection(machine.serial_socket)
        writer.write(b"\xff\x00a")
        assert await reader.readexactly(3) == b"\xff\x00a"  # raw, and the ! is not replayed
        second_reader, second = await asyncio.open_unix_connection(machine.serial_socket)
        second.write(b"b")
        writer.write(b"c")
        assert await reader.readexactly(1) == b"c"
        writer.close()
        await writer.wait_closed()
        assert await second_reader.readexactly(1) == b"b"  # served once the first has left
        second.close()
        await second.wait_closed()
        await logged(machine, b"!\xff\x00acb")


async def logged(machine: Machine, text: bytes) -> None:
    while True:
        if log_of(machine) == text:
            return
        await asyncio.sleep(0.02)


def log_of(machine: Machine) -> bytes:
    return Path(machine.serial_log).read_bytes()
