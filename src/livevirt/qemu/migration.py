"""Moving a guest from one QEMU to another.

The other QEMU must have the devices of this one as they are now, each at its place; what came and
went since the start is part of that. It is started stopped, waits for a guest, and runs it only
on command. The stream itself is QEMU's own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from livevirt.errors import Terminal
from livevirt.qemu import balloon
from livevirt.qemu.cmdline import occupied_ports
from livevirt.qemu.disk import Disk, bridge_id, own_thread
from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.machine import TABLET_PREFIX, Machine, Tablet
from livevirt.qemu.observe import PERIPHERALS, Observed
from livevirt.qemu.session import Session

EVENT = "MIGRATION"
NEVER, FAILED, COMPLETED = "none", ("failed", "cancelled"), "completed"
_ENDED = (NEVER, COMPLETED, *FAILED)
_CHILD = re.compile(r"child\[\d+\]")
_ON_USB = re.compile(r"Port (\d+), .*ID: (\S+)")
_UNLIMITED = 0
_DOWNTIME_MS = 300  # QEMU's own


class Undescribed(Terminal):
    """A machine has a drive that another machine could not have."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the devices of a running machine are plugged in, by their ids."""

    ports: Mapping[str, int] = field(default_factory=dict)  # PCIe
    usb: Mapping[str, int] = field(default_factory=dict)  # of drives, also behind a bridge
    tablets: Mapping[str, int] = field(default_factory=dict)  # on USB, by their names


@dataclass(frozen=True, slots=True)
class Limits:
    """How a guest may be sent."""

    bandwidth: int = _UNLIMITED  # bytes per second
    auto_converge: bool = False  # slow a guest down that writes faster than it is sent
    downtime_ms: int | None = None  # how long it may be paused at the end


@dataclass(frozen=True, slots=True)
class Transfer:
    """How far a guest has been sent. `status` is QEMU's own, NEVER if none was sent."""

    status: str
    total: int = 0  # bytes of memory
    remaining: int = 0
    transferred: int = 0  # bytes that went over the line
    downtime_ms: int | None = None
    error: str = ""

    @property
    def under_way(self) -> bool:
        """Whether it was begun and has not ended."""
        return self.status not in _ENDED


# ------------------------------------------------------------ the other machine


def as_it_stands(
    machine: Machine, observed: Observed, places: Places, known: Sequence[Disk]
) -> Machine:
    """Return the machine that starts with what this one has by now.

    `known` are disks that may have come since the start. Raises Undescribed for a drive that is
    neither one of them nor of the start.
    """
    drives = tuple(_in_order(_drives(machine, observed, places, known), machine))
    total = occupied_ports(machine) + machine.spare_ports
    own = {disk.io_thread for disk in drives if disk.io_thread == own_thread(disk.id)}
    shared = [id for id in machine.io_threads if id not in _own_threads(machine)]
    found = replace(
        machine,
        cpu=replace(machine.cpu, sockets=observed.sockets),
        disks=drives,
        io_threads=(*shared, *sorted(filter(None, own))),
        balloon=_balloon(machine, observed),
        tablets=(
            *(tablet for tablet in machine.tablets if tablet.bus == "virtio"),
            *(Tablet(name=name, slot=port) for name, port in places.tablets.items()),
        ),
        ports=(),
    )
    on_ports = {id: port for id, port in places.ports.items() if port < total}
    return replace(
        found, ports=tuple(sorted(on_ports.items())), spare_ports=total - occupied_ports(found)
    )


def _balloon(machine: Machine, observed: Observed) -> bool | None:
    """Return whether there is a balloon; None if an earlier release started it without one."""
    if balloon.DEVICE in observed.devices:
        return True
    return None if machine.balloon is None else False


def _own_threads(machine: Machine) -> set[str]:
    return {own_thread(disk.id) for disk in machine.disks}


def _drives(
    machine: Machine, observed: Observed, places: Places, known: Sequence[Disk]
) -> Iterator[Disk]:
    """Yield the drives of now: those of the start in their order, then the others."""
    there = {drive.id: drive for drive in observed.drives}
    order = [disk.id for disk in machine.disks if disk.id in there]
    for id in (*order, *sorted(set(there) - set(order))):
        drive = there[id]
        candidates = [disk for disk in (*machine.disks, *known) if disk.id == id]
        found = next((disk for disk in candidates if disk.node == drive.node), None)
        if found is None and drive.node is None and drive.removable and candidates:
            found = replace(candidates[0], image=None)
        if found is None:
            raise Undescribed(
                f"drive {id} is not as its instance wants it any more; it is on its way out, and"
                " the guest can move once it is gone"
            )
        slot = places.usb.get(id) if found.bus == "usb" else drive.lun
        yield found if slot is None else replace(found, slot=slot)


def _in_order(drives: Iterable[Disk], machine: Machine) -> Iterator[Disk]:
    """Yield drives of which no two have the same place in the boot order, nor that of a NIC."""
    taken: set[int | None] = {nic.boot_index for nic in machine.nics} - {None}
    for drive in drives:
        yield replace(drive, boot_index=None) if drive.boot_index in taken else drive
        taken |= {drive.boot_index} - {None}


async def places(qmp: Session, observed: Observed) -> Places:
    """Ask where everything is plugged in."""
    taken = [
        id
        for id, driver in observed.devices.items()
        if driver == "pcie-root-port" and id not in observed.free_ports
    ]
    listing, *on_ports = await asyncio.gather(
        qmp.execute("human-monitor-command", {"command-line": "info usb"}),
        *(_on_bus(qmp, f"{PERIPHERALS}/{id}/{id}") for id in taken),
    )
    ports = {
        plugged: int(id.removeprefix("port"))
        for id, found in zip(taken, on_ports, strict=True)
        for plugged in found
    }
    on_usb = usb_ports(listing)  # nothing else reports a port that QEMU chose
    usb = {
        drive.id: on_usb[id]
        for drive in observed.drives
        for id in (bridge_id(drive.id), drive.id)
        if id in on_usb
    }
    tablets = {
        id.removeprefix(TABLET_PREFIX): port
        for id, port in sorted(on_usb.items())
        if id.startswith(TABLET_PREFIX)
    }
    return Places(ports, usb, tablets)


def usb_ports(listing: str) -> dict[str, int]:
    """Read the answer to `info usb`: the port of each device that has an id."""
    return {id: int(port) for port, id in _ON_USB.findall(listing)}


async def _on_bus(qmp: Session, bus: str) -> list[str]:
    listed = await qmp.execute("qom-list", {"path": bus})
    links = [entry["name"] for entry in listed if _CHILD.fullmatch(entry["name"])]
    paths = [await _get(qmp, bus, link) for link in links]
    return [path.removeprefix(f"{PERIPHERALS}/") for path in paths]


async def _get(qmp: Session, path: str, name: str) -> str:
    value: str = await qmp.execute("qom-get", {"path": path, "property": name})
    return value


# ------------------------------------------------------------ the stream


async def listen(qmp: Session, socket: str) -> None:
    """Have a machine that was started for it wait for a guest; safe to repeat."""
    await _switch(qmp, {"events": True})
    answer = await qmp.execute("query-migrate")
    if not answer.get("socket-address") and transfer_of(answer).status == NEVER:
        await qmp.execute("migrate-incoming", {"uri": f"unix:{socket}"})


async def send(qmp: Session, socket: str, limits: Limits) -> None:
    """Begin to send the guest; `MIGRATION` events and `transfer` report the progress."""
    await _switch(qmp, {"events": True, "auto-converge": limits.auto_converge})
    await qmp.execute(
        "migrate-set-parameters",
        {
            "max-bandwidth": limits.bandwidth,
            "downtime-limit": limits.downtime_ms or _DOWNTIME_MS,
        },
    )
    await qmp.execute("migrate", {"uri": f"unix:{socket}"})


async def cancel(qmp: Session) -> Transfer:
    """Cancel a transfer, if one is under way; return how it ended, which may be `completed`."""
    with qmp.listen(EVENT) as events:
        await qmp.execute("migrate_cancel")
        while (found := await transfer(qmp)).under_way:
            await anext(events)
    return found


async def transfer(qmp: Session) -> Transfer:
    """Ask how far the guest has been sent, or was received."""
    return transfer_of(await qmp.execute("query-migrate"))


def transfer_of(answer: Mapping[str, Any]) -> Transfer:
    """Read `query-migrate`."""
    ram = answer.get("ram") or {}
    return Transfer(
        status=answer.get("status", NEVER),
        total=ram.get("total", 0),
        remaining=ram.get("remaining", 0),
        transferred=ram.get("transferred", 0),
        downtime_ms=answer.get("downtime"),
        error=answer.get("error-desc", ""),
    )


async def _switch(qmp: Session, wanted: Mapping[str, bool]) -> None:
    listed = [{"capability": name, "state": state} for name, state in wanted.items()]
    try:
        await qmp.execute("migrate-set-capabilities", {"capabilities": listed})
    except CommandFailed:
        if not (await transfer(qmp)).under_way:
            raise  # under way they cannot change, and need not
