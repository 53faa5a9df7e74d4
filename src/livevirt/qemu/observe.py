"""The machine as QEMU reports it right now.

Read from QEMU alone, never from memory, so it is right after a restart of its driver. The
parts that interpret QEMU's answers are pure.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from livevirt.qemu import balloon
from livevirt.qemu.agent import Filesystem, FilesystemDisk, PciAddress
from livevirt.qemu.balloon import Balloon
from livevirt.qemu.cmdline import AGENT_CHARDEV, MEMORY_DEVICE
from livevirt.qemu.disk import NODE_PREFIX, SCSI_CONTROLLER, bridge_id
from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.machine import Thread
from livevirt.qemu.mirror import Copy, copies_of
from livevirt.qemu.session import Session

PERIPHERALS = "/machine/peripheral"  # where every device with an id is

_CHILD = re.compile(r"child<(.+)>")
_INSERTED, _SUCCESS = 1, 0  # ACPI's codes in _OST
_SCSI_DRIVERS = ("scsi-hd", "scsi-cd", "scsi-block")
_QUESTIONS = (
    "query-block", "query-status", "query-hotpluggable-cpus", "query-memory-size-summary",
    "query-memory-devices", "query-jobs", "query-chardev", "query-acpi-ospm-status",
    "query-iothreads",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CpuSlot:
    """A place for one vCPU; `id` is None for the boot CPUs, which cannot be unplugged."""

    thread: Thread
    type: str
    present: bool
    id: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryState:
    """Bytes of memory. `plugged` is what the guest has taken, `requested` what it was offered."""

    boot: int
    plugged: int = 0
    requested: int = 0
    headroom: int = 0
    address: int = 0  # where the guest finds what is plugged
    balloon: Balloon | None = None  # None: the machine has none

    @property
    def ballooned(self) -> int:
        """Bytes of the boot memory that the guest has given back."""
        return self.balloon.held if self.balloon is not None else 0

    @property
    def total(self) -> int:
        return self.boot + self.plugged - self.ballooned


@dataclass(frozen=True, slots=True)
class Drive:
    """A disk or CD-ROM drive; `node` is None in an empty drive."""

    id: str
    node: str | None = None
    removable: bool = False
    tray_open: bool = False
    locked: bool = False
    size: int = 0
    lun: int | None = None
    io_status: str = "ok"


@dataclass(frozen=True, slots=True)
class Observed:
    """One machine at one moment."""

    run_state: str  # as `query-status` names it
    cpus: tuple[CpuSlot, ...]
    memory: MemoryState
    drives: tuple[Drive, ...] = ()
    devices: Mapping[str, str] = field(default_factory=dict)  # id -> driver, plugged ones too
    free_ports: tuple[str, ...] = ()
    idle_nodes: tuple[str, ...] = ()  # images of disks, held open by no drive
    copies: tuple[Copy, ...] = ()  # of disks, under way or just over
    agent_open: bool = False  # something in the guest holds the agent's port open
    accepted: frozenset[str] = frozenset()  # devices the guest's ACPI has said yes to
    io_threads: tuple[str, ...] = ()

    @property
    def sockets(self) -> int:
        """How many sockets have all their threads, counted from socket 0 without a gap."""
        missing = {slot.thread.socket for slot in self.cpus if not slot.present}
        there = {slot.thread.socket for slot in self.cpus} - missing
        return next(n for n in range(len(there) + 1) if n not in there)

    def drive(self, id: str) -> Drive | None:
        return next((drive for drive in self.drives if drive.id == id), None)


async def observe(qmp: Session) -> Observed:
    """Ask QEMU for everything a plan depends on."""
    devices = devices_of(await qmp.execute("qom-list", {"path": PERIPHERALS}))
    on_scsi = [
        id
        for id, driver in devices.items()
        if driver in _SCSI_DRIVERS and bridge_id(id) not in devices
    ]
    bridges = [id for id, driver in devices.items() if driver == "usb-bot"]
    answers, luns, attached, free_ports, nodes = await asyncio.gather(
        _answers(qmp, _QUESTIONS),
        _properties(qmp, on_scsi, "lun"),
        _properties(qmp, bridges, "attached"),
        _free_ports(qmp, _ports(devices)),
        qmp.execute("query-named-block-nodes", {"flat": True}),
    )
    drives = tuple(
        drive
        for drive in drives_of(answers["query-block"], luns)
        if attached.get(bridge_id(drive.id), True)  # else plugged by halves, and not seen yet
    )
    memory = memory_state(answers["query-memory-size-summary"], answers["query-memory-devices"])
    if balloon.DEVICE in devices:
        memory = replace(memory, balloon=await balloon.observe(qmp, memory.boot))
    return Observed(
        run_state=answers["query-status"]["status"],
        cpus=cpu_slots(answers["query-hotpluggable-cpus"]),
        memory=memory,
        drives=drives,
        devices=devices,
        free_ports=free_ports,
        idle_nodes=idle_nodes(nodes, drives),
        copies=copies_of(answers["query-jobs"]),
        agent_open=agent_port_open(answers["query-chardev"]),
        accepted=accepted_devices(answers["query-acpi-ospm-status"]),
        io_threads=tuple(sorted(io_threads(answers["query-iothreads"]).values())),
    )


async def _answers(qmp: Session, questions: Sequence[str]) -> dict[str, Any]:
    """Ask several questions at once: what takes time is the way there and back."""
    answers = await asyncio.gather(*(qmp.execute(question) for question in questions))
    return dict(zip(questions, answers, strict=True))


async def pci_addresses(qmp: Session) -> dict[str, PciAddress]:
    """Return where the guest finds every PCI device that has an id."""
    found: dict[str, PciAddress] = {}
    for bus in await qmp.execute("query-pci"):
        found |= addresses_of(bus["devices"])
    return found


def addresses_of(devices: Sequence[Mapping[str, Any]]) -> dict[str, PciAddress]:
    """Read the devices of a bus in `query-pci`, and of all buses below."""
    found = {}
    for device in devices:
        if device["qdev_id"]:
            address = PciAddress(device["bus"], device["slot"], device["function"])
            found[device["qdev_id"]] = address
        found |= addresses_of((device.get("pci_bridge") or {}).get("devices") or ())
    return found


def devices_of(listed: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the driver of every device that has an id."""
    return {
        entry["name"]: child.group(1)
        for entry in listed
        if (child := _CHILD.fullmatch(entry["type"]))
    }


def cpu_slots(answer: Sequence[Mapping[str, Any]]) -> tuple[CpuSlot, ...]:
    """Read `query-hotpluggable-cpus`; lowest socket first."""
    slots = []
    for entry in answer:
        place = entry["props"]
        path = entry.get("qom-path")
        slots.append(
            CpuSlot(
                thread=Thread(place["socket-id"], place["core-id"], place["thread-id"]),
                type=entry["type"],
                present=path is not None,
                id=_peripheral(path) if path else None,
            )
        )
    return tuple(sorted(slots, key=lambda slot: slot.thread))


def memory_state(summary: Mapping[str, int], devices: Sequence[Mapping[str, Any]]) -> MemoryState:
    """Read `query-memory-size-summary` and `query-memory-devices`."""
    boot = summary["base-memory"]
    for device in devices:
        if device["type"] == "virtio-mem" and device["data"].get("id") == MEMORY_DEVICE:
            data = device["data"]
            return MemoryState(
                boot, data["size"], data["requested-size"], data["max-size"], data["memaddr"]
            )
    return MemoryState(boot)


def drives_of(answer: Sequence[Mapping[str, Any]], luns: Mapping[str, int]) -> tuple[Drive, ...]:
    """Read `query-block`; drives without an id are not ours and left out."""
    drives = []
    for entry in answer:
        id = _peripheral(entry.get("qdev", ""))
        if id is None:
            continue
        inserted = entry.get("inserted")
        drives.append(
            Drive(
                id=id,
                node=inserted["node-name"] if inserted else None,
                removable=entry["removable"],
                tray_open=entry.get("tray_open", False),
                locked=entry["locked"],
                size=inserted["image"]["virtual-size"] if inserted else 0,
                lun=luns.get(id),
                io_status=entry.get("io-status", "ok"),
            )
        )
    return tuple(drives)


def idle_nodes(answer: Sequence[Mapping[str, Any]], drives: tuple[Drive, ...]) -> tuple[str, ...]:
    """Read `query-named-block-nodes`; the nodes below ours have names made up by QEMU."""
    used = {drive.node for drive in drives}
    names = (entry["node-name"] for entry in answer)
    return tuple(sorted(n for n in names if n.startswith(NODE_PREFIX) and n not in used))


def agent_port_open(answer: Sequence[Mapping[str, Any]]) -> bool:
    """Read `query-chardev`; the event of a change is `VSERPORT_CHANGE`."""
    return any(entry["label"] == AGENT_CHARDEV and entry["frontend-open"] for entry in answer)


def accepted_devices(answer: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Read `query-acpi-ospm-status`: the devices that were plugged and the guest took."""
    return frozenset(
        entry["device"]
        for entry in answer
        if "device" in entry and (entry["source"], entry["status"]) == (_INSERTED, _SUCCESS)
    )


def _peripheral(path: str) -> str | None:
    """Return the id in a QOM path; virtio-blk names its inner device, others just the id."""
    if path.startswith(f"{PERIPHERALS}/"):
        return path.removeprefix(f"{PERIPHERALS}/").split("/")[0]
    return path if path and "/" not in path else None


def _ports(devices: Mapping[str, str]) -> list[str]:
    ports = [id for id, driver in devices.items() if driver == "pcie-root-port"]
    return sorted(ports, key=lambda id: int(id.removeprefix("port")))


async def _free_ports(qmp: Session, ports: Sequence[str]) -> tuple[str, ...]:
    free = await asyncio.gather(*(_is_free(qmp, port) for port in ports))
    return tuple(port for port, is_free in zip(ports, free, strict=True) if is_free)


async def _is_free(qmp: Session, port: str) -> bool:
    # The bus object of a port has the port's name; what is plugged in shows as child[n].
    # `query-pci` would know nothing before the firmware has numbered the buses.
    bus = await qmp.execute("qom-list", {"path": f"{PERIPHERALS}/{port}/{port}"})
    return not any(entry["name"].startswith("child[") for entry in bus)


async def _properties(qmp: Session, ids: Sequence[str], name: str) -> dict[str, int]:
    """Ask for a property of many devices at once."""
    values = await asyncio.gather(*(_property(qmp, id, name) for id in ids))
    return dict(zip(ids, values, strict=True))


async def _property(qmp: Session, id: str, name: str) -> int:
    try:
        found: int = await qmp.execute("qom-get", {"path": f"{PERIPHERALS}/{id}", "property": name})
    except CommandFailed:
        return -1  # unplugged since it was listed
    return found


# ---------------------------------------------------------------- threads


@dataclass(frozen=True, slots=True)
class Threads:
    """By the kernel's number of a thread: the vCPU that it runs, or the id of the IO thread."""

    vcpus: Mapping[int, Thread]
    io_threads: Mapping[int, str]


async def threads(qmp: Session) -> Threads:
    """Ask QEMU for its threads."""
    return Threads(
        vcpu_threads(await qmp.execute("query-cpus-fast")),
        io_threads(await qmp.execute("query-iothreads")),
    )


def vcpu_threads(answer: Sequence[Mapping[str, Any]]) -> dict[int, Thread]:
    """Read `query-cpus-fast`."""
    found = {}
    for entry in answer:
        place = entry["props"]
        thread = Thread(place["socket-id"], place["core-id"], place["thread-id"])
        found[int(entry["thread-id"])] = thread
    return found


def io_threads(answer: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Read `query-iothreads`."""
    return {int(entry["thread-id"]): str(entry["id"]) for entry in answer}


# ---------------------------------------------------------------- mounted file systems

_DISCS = ("iso9660", "udf")
_MOST_POINTS, _LONGEST_POINT = 10, 256  # the guest chooses it, and it ends up in messages


def mount_points(
    drive: Drive, filesystems: Iterable[Filesystem], addresses: Mapping[str, PciAddress]
) -> list[str]:
    """Return where the guest has mounted what is on a drive, or the first few places.

    Images are not distinguished: of a CD-ROM drive with a locked tray, all of them are named.
    """
    found = {
        each.mountpoint[:_LONGEST_POINT]
        for each in filesystems
        if (drive.locked and each.type in _DISCS)
        or any(_is(disk, drive, addresses) for disk in each.disk)
    }
    return sorted(found)[:_MOST_POINTS]


def _is(disk: FilesystemDisk, drive: Drive, addresses: Mapping[str, PciAddress]) -> bool:
    if drive.lun is not None:
        on_controller = disk.pci_controller == addresses.get(SCSI_CONTROLLER)
        return on_controller and (disk.target, disk.unit) == (0, drive.lun)
    return drive.id in addresses and disk.pci_controller == addresses[drive.id]
