"""Devices that come, go or change while the guest runs: balloon, tablets, watchdog, boot order.

The plan is pure and made from QEMU's own answers. QEMU does not report the action of its watchdog,
so the caller remembers which one it has set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args

from livevirt.qemu import balloon
from livevirt.qemu.act import add_device, unplug
from livevirt.qemu.disk import USB_CONTROLLER, port_place
from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.lifecycle import HELD
from livevirt.qemu.machine import TABLET_PREFIX, WATCHDOG, WatchdogAction, tablet_device
from livevirt.qemu.observe import PERIPHERALS, Observed
from livevirt.qemu.session import Session

ACTIONS: tuple[str, ...] = get_args(WatchdogAction)
TABLET = "usb-tablet"
NO_INDEX = -1  # of a device that the firmware does not try


@dataclass(frozen=True, slots=True)
class DeviceGoal:
    """What the guest should have."""

    balloon: bool | None = None  # None: as it is
    tablets: frozenset[str] = frozenset()  # names of those on USB
    watchdog: str = ""  # what it does when the guest hangs; empty if there is none
    boot: Mapping[str, int] = field(default_factory=dict)  # the place of each drive in the order


@dataclass(frozen=True, slots=True)
class DeviceState:
    """What QEMU reports, and the action that was set last."""

    observed: Observed
    boot: Mapping[str, int] = field(default_factory=dict)
    action: str = ""


@dataclass(frozen=True, slots=True)
class PlugDevice:
    """Add a device, given as pairs to stay hashable."""

    device: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class UnplugDevice:
    """Take a device away, with the guest's consent."""

    id: str


@dataclass(frozen=True, slots=True)
class SetAction:
    """Set what the watchdog does when the guest hangs."""

    action: str


@dataclass(frozen=True, slots=True)
class SetBootIndex:
    """Give a drive its place in the order that the firmware follows at the next boot."""

    id: str
    index: int


@dataclass(frozen=True, slots=True)
class Impossible:
    """Something wanted that cannot be done now, and why. Nothing to execute."""

    reason: str


Step = PlugDevice | UnplugDevice | SetAction | SetBootIndex | Impossible


def plan(goal: DeviceGoal, state: DeviceState) -> list[Step]:
    """List the steps to the devices that are wanted."""
    if state.observed.run_state not in ("running", *HELD):
        return []
    return [
        *_balloon(goal, state.observed),
        *_tablets(goal, state.observed),
        *_watchdog(goal, state),
        *_boot_order(goal.boot, state.boot),
    ]


def _balloon(goal: DeviceGoal, observed: Observed) -> Iterator[Step]:
    there = balloon.DEVICE in observed.devices
    if goal.balloon is None:
        return
    if goal.balloon and not there:
        if not observed.free_ports:
            yield Impossible("no PCIe port is free for the balloon")
        else:
            place = port_place(observed.free_ports[-1])
            yield PlugDevice(
                tuple({"driver": balloon.DRIVER, "id": balloon.DEVICE, **place}.items())
            )
    elif there and not goal.balloon:
        if observed.memory.ballooned:
            yield Impossible("the balloon holds memory of the guest")
        else:
            yield UnplugDevice(balloon.DEVICE)


def _tablets(goal: DeviceGoal, observed: Observed) -> Iterator[Step]:
    if USB_CONTROLLER not in observed.devices:
        return  # an earlier release started it, and ignored input devices
    there = tablets(observed)
    for name in sorted(there - goal.tablets):
        yield UnplugDevice(TABLET_PREFIX + name)
    for name in sorted(goal.tablets - there):
        yield PlugDevice(tuple(tablet_device(name).items()))


def tablets(observed: Observed) -> frozenset[str]:
    """Return the names of the tablets on USB."""
    return frozenset(
        id.removeprefix(TABLET_PREFIX)
        for id, driver in observed.devices.items()
        if driver == TABLET and id.startswith(TABLET_PREFIX)
    )


def _watchdog(goal: DeviceGoal, state: DeviceState) -> Iterator[Step]:
    if goal.watchdog and WATCHDOG in state.observed.devices and state.action != goal.watchdog:
        yield SetAction(goal.watchdog)


def _boot_order(wanted: Mapping[str, int], has: Mapping[str, int]) -> Iterator[Step]:
    """Yield the steps to an order; no two devices may have the same place in between."""
    changed = {id: wanted[id] for id, index in has.items() if wanted.get(id, index) != index}
    for id in changed:
        if has[id] != NO_INDEX:
            yield SetBootIndex(id, NO_INDEX)
    for id, index in changed.items():
        if index != NO_INDEX:
            yield SetBootIndex(id, index)


# ---------------------------------------------------------------- QEMU


async def boot_indices(qmp: Session, observed: Observed) -> dict[str, int]:
    """Return the place of each drive in the boot order."""
    found = {}
    for drive in observed.drives:
        path = f"{PERIPHERALS}/{drive.id}"
        try:
            found[drive.id] = await qmp.execute("qom-get", {"path": path, "property": "bootindex"})
        except CommandFailed:
            continue  # unplugged since it was listed
    return found


async def act(step: Step, qmp: Session) -> None:
    """Do one step; return when QEMU, or the guest where it has a say, has done it."""
    match step:
        case PlugDevice(device):
            await add_device(qmp, dict(device))
            await balloon.poll(qmp, balloon.IDLE_SECONDS)
        case UnplugDevice(id):
            await unplug(qmp, id)
        case SetAction(action):
            await qmp.execute("watchdog-set-action", {"action": action})
        case SetBootIndex(id, index):
            value = {"path": f"{PERIPHERALS}/{id}", "property": "bootindex", "value": index}
            await qmp.execute("qom-set", value)
        case Impossible():
            pass
