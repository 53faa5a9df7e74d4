"""Plans of devices followed in real QEMU, which is asked what it has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from livevirt.qemu import balloon, devices
from livevirt.qemu.devices import DeviceGoal, DeviceState
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.machine import Tablet
from livevirt.qemu.migration import as_it_stands, places
from livevirt.qemu.observe import Observed, observe
from livevirt.qemu.session import Session

pytestmark = pytest.mark.guest
MIB = 1024 * 1024


def a_disk(folder: Path, name: str, **changes: object) -> Disk:
    path = folder / name
    subprocess.run(["qemu-img", "create", "-q", "-f", "raw", path, "1M"], check=True)
    return Disk(id=f"ua-{name}", image=Image(str(path)), **changes)  # type: ignore[arg-type]


async def follow(goal: DeviceGoal, qmp: Session) -> Observed:
    """Plan and act until there is nothing left to do."""
    action = ""
    for _ in range(3):
        observed = await observe(qmp)
        boot = await devices.boot_indices(qmp, observed)
        steps = devices.plan(goal, DeviceState(observed, boot, action))
        for step in steps:
            await devices.act(step, qmp)
            action = goal.watchdog
        if not steps:
            return observed
    raise AssertionError(steps)


async def test_drives_on_every_bus_change_places_in_the_boot_order(
    a_machine, start, run_dir: Path
) -> None:
    disks = (
        a_disk(run_dir, "a", bus="virtio", boot_index=1),
        a_disk(run_dir, "b", bus="scsi", boot_index=2),
        a_disk(run_dir, "c", bus="sata", boot_index=3),
        Disk(id="ua-d", image=None, kind="cdrom", bus="usb", boot_index=4),
    )
    async with start(a_machine(disks=disks, usb=True)) as guest:
        orders = (
            {"ua-a": 4, "ua-b": 3, "ua-c": 2, "ua-d": 1},
            {"ua-a": 1, "ua-b": -1, "ua-c": 101, "ua-d": 2},
        )
        for order in orders:
            observed = await follow(DeviceGoal(balloon=False, boot=order), guest.qmp)
            found = await devices.boot_indices(guest.qmp, observed)
            assert {id: found[id] for id in order} == order


async def test_a_tablet_comes_and_goes_and_a_target_has_it_at_the_same_port(
    a_machine, start
) -> None:
    machine = a_machine(usb=True)
    async with start(machine) as guest:
        observed = await follow(DeviceGoal(balloon=False, tablets=frozenset({"pen"})), guest.qmp)
        there = as_it_stands(machine, observed, await places(guest.qmp, observed), ())
        (tablet,) = there.tablets
        assert (tablet.name, tablet.slot) == ("pen", 1)
        copy = a_machine(usb=True, tablets=there.tablets, ports=there.ports)
        async with start(copy) as target:
            again = await observe(target.qmp)
            assert (await places(target.qmp, again)).tablets == {"pen": 1}
        gone = await follow(DeviceGoal(balloon=False), guest.qmp)
        assert devices.tablets(gone) == frozenset()


async def test_a_tablet_on_virtio_is_there_from_the_start_and_on_a_target(a_machine, start) -> None:
    machine = a_machine(tablets=(Tablet(name="fast", bus="virtio"),))
    async with start(machine) as guest:
        observed = await observe(guest.qmp)
        assert observed.devices["input-fast"] == "virtio-tablet-pci"
        there = as_it_stands(machine, observed, await places(guest.qmp, observed), ())
        assert there.tablets == machine.tablets
        assert "input-fast" in dict(there.ports)


async def test_a_balloon_comes_on_a_free_port_and_a_target_has_it_there(a_machine, start) -> None:
    machine = a_machine(spare_ports=2)
    async with start(machine) as guest:
        observed = await follow(DeviceGoal(balloon=True), guest.qmp)
        assert observed.memory.balloon == balloon.Balloon()
        there = as_it_stands(machine, observed, await places(guest.qmp, observed), ())
        assert there.balloon
        assert dict(there.ports)[balloon.DEVICE] == 4
        assert there.spare_ports == 1


async def test_a_machine_with_a_balloon_has_given_nothing_back(a_machine, start) -> None:
    async with start(a_machine(balloon=True)) as guest:
        await balloon.poll(guest.qmp, balloon.IDLE_SECONDS)
        found = (await observe(guest.qmp)).memory
        assert (found.ballooned, found.balloon) == (0, balloon.Balloon())


@pytest.mark.parametrize("action", devices.ACTIONS)
async def test_a_watchdog_takes_every_action(a_machine, start, action: str) -> None:
    async with start(a_machine(watchdog="reset")) as guest:
        await follow(DeviceGoal(balloon=False, watchdog=action), guest.qmp)
