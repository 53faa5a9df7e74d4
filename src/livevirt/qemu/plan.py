"""What to do to a running machine so that it becomes what is wanted. Pure.

Steps are small data. Each is safe to repeat, and the list is made again from QEMU's state, so
a plan that was cut short anywhere is simply planned again. What cannot be done shows as `Blocked`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import MappingProxyType
from typing import Literal

from livevirt.qemu import balloon, mirror
from livevirt.qemu.agent import Vcpu
from livevirt.qemu.balloon import LowMemory, PollBalloon, SetBalloon
from livevirt.qemu.disk import (
    MOVABLE,
    USB_CONTROLLER,
    Disk,
    Json,
    bridge_id,
    own_thread,
    port_place,
    scsi_place,
    usb_place,
)
from livevirt.qemu.guest_memory import GuestMemory
from livevirt.qemu.lifecycle import HELD
from livevirt.qemu.machine import Machine, Thread
from livevirt.qemu.mirror import EndCopy, FinishCopy, StartCopy
from livevirt.qemu.observe import Drive, Observed


@dataclass(frozen=True, slots=True)
class Wanted:
    """How large the running machine should be."""

    sockets: int
    memory: int
    paused: bool = False  # it is paused for now, so its guest cannot release anything
    after: int = 0  # reports of its free memory from before that second are out of date


@dataclass(frozen=True, slots=True)
class MachineSnapshot:
    """Everything a plan depends on: how it was started, how it is, and what the guest reports."""

    machine: Machine
    observed: Observed
    vcpus: tuple[Vcpu, ...] | None = None  # None: no guest agent answers
    blocks: GuestMemory | None = None  # None: no guest agent lists them
    agent: bool = False  # whether a guest agent answers, whatever it can report
    auto_online: str | None = None  # what the kernel does with new memory; None: not asked yet

    @property
    def sockets(self) -> int:
        """How many sockets the guest uses: those it has online, else those it has accepted.

        A guest that runs uses at least one, if only a part of it.
        """
        cpu = self.machine.cpu
        if self.vcpus is not None:
            online = sum(vcpu.online for vcpu in self.vcpus)
            return min(self.observed.sockets, max(online // cpu.per_socket, 1))
        missing = {
            slot.thread.socket
            for slot in self.observed.cpus
            if slot.thread.socket >= cpu.sockets and slot.id not in self.observed.accepted
        }
        return min(self.observed.sockets, *missing, cpu.max_sockets)

    @property
    def held_sockets(self) -> int:
        """How many sockets the guest may use at any time, which its pod must hold.

        With KVM these are all that are plugged. An emulated one stays plugged for good, so one that
        the agent has taken offline does not count.
        """
        if self.machine.accelerator == "kvm":
            return max(self.sockets, self.observed.sockets)
        return self.sockets

    @property
    def memory(self) -> int:
        """How many bytes of memory the guest uses: not those it has plugged and left offline.

        Without an agent that lists them, all that is plugged counts.
        """
        if self.blocks is None:
            return self.plugged
        state = self.observed.memory
        used = self.blocks.in_use(state.address, state.headroom, state.plugged)
        return self.machine.memory.boot + used - self.ballooned

    @property
    def ballooned(self) -> int:
        """How many bytes of its boot memory the guest has given back."""
        return self.observed.memory.ballooned

    @property
    def plugged(self) -> int:
        """How many bytes of memory it has, online or not: all but what the balloon holds."""
        state = self.observed.memory
        return self.machine.memory.boot + state.plugged - state.ballooned

    @property
    def offline_blocks(self) -> tuple[int, ...]:
        """The blocks of plugged memory that its kernel has and does not use, as far as known."""
        state = self.observed.memory
        return self.blocks.offline(state.address, state.headroom) if self.blocks else ()

    @property
    def present(self) -> int | None:
        """How many CPUs its kernel has registered, online or not; None without an agent."""
        return len(self.vcpus) if self.vcpus is not None else None

    @property
    def offered(self) -> int:
        """How many bytes of memory it may have at most if it takes what it was offered."""
        state = self.observed.memory
        return self.machine.memory.boot + state.requested - state.ballooned


@dataclass(frozen=True, slots=True)
class PlugCpu:
    """Add one vCPU."""

    type: str
    thread: Thread


@dataclass(frozen=True, slots=True)
class UnplugCpu:
    """Take one vCPU away, with the guest's consent."""

    id: str


@dataclass(frozen=True, slots=True)
class SetVcpus:
    """Let the guest take CPUs online or offline, by its own numbers."""

    ids: tuple[int, ...]
    online: bool


@dataclass(frozen=True, slots=True)
class PrepareMemory:
    """Make the guest's kernel bring new memory online where it can be taken away again."""


@dataclass(frozen=True, slots=True)
class OnlineMemory:
    """Let the guest bring blocks of memory online, by its own numbers."""

    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RequestMemory:
    """Offer the guest this much memory on top of what it booted with."""

    size: int


@dataclass(frozen=True, slots=True)
class PlugDisk:
    """Add a disk at a place that is free."""

    disk: Disk
    place: tuple[tuple[str, str | int], ...]  # of the device, as pairs to stay hashable


@dataclass(frozen=True, slots=True)
class UnplugDisk:
    """Detach a disk, and close its image."""

    id: str
    node: str | None


@dataclass(frozen=True, slots=True)
class ChangeMedium:
    """Make a CD-ROM drive hold the image of `drive`, or nothing."""

    drive: Disk
    force: bool = False  # also if the guest has locked the tray


@dataclass(frozen=True, slots=True)
class GrowDisk:
    """Let the guest see that the image of a drive has become larger."""

    id: str
    node: str
    size: int


@dataclass(frozen=True, slots=True)
class CloseImage:
    """Close an image that no drive uses."""

    node: str


@dataclass(frozen=True, slots=True)
class EndThread:
    """End an IO thread that serves no disk."""

    id: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """Something wanted that cannot be done now, and why. Nothing to execute."""

    what: Literal["cpu", "memory", "disk"]
    name: str
    reason: str


Step = (
    PlugCpu
    | UnplugCpu
    | SetVcpus
    | PrepareMemory
    | OnlineMemory
    | RequestMemory
    | SetBalloon
    | PollBalloon
    | LowMemory
    | PlugDisk
    | UnplugDisk
    | ChangeMedium
    | GrowDisk
    | StartCopy
    | FinishCopy
    | EndCopy
    | CloseImage
    | EndThread
    | Blocked
)

_CHANGEABLE = ("running", *HELD)


def resize(wanted: Wanted, seen: MachineSnapshot) -> list[Step]:
    """List the steps to the CPUs and the memory that are wanted, in the order to do them.

    A machine that ended, broke or migrates is left alone.
    """
    if seen.observed.run_state not in _CHANGEABLE:
        return []
    return [*_cpus(wanted, seen), *_memory(wanted, seen)]


def _cpus(wanted: Wanted, seen: MachineSnapshot) -> Iterator[Step]:
    cpu = seen.machine.cpu
    if not 1 <= wanted.sockets <= cpu.max_sockets:
        reason = f"the machine was started for 1 to {cpu.max_sockets} sockets"
        yield Blocked("cpu", f"{wanted.sockets} sockets", reason)
        return
    for slot in seen.observed.cpus:
        if not slot.present and slot.thread.socket < wanted.sockets:
            yield PlugCpu(slot.type, slot.thread)
    yield from _surplus_cpus(wanted, seen)
    yield from _vcpus_to_online(wanted, seen)


def _surplus_cpus(wanted: Wanted, seen: MachineSnapshot) -> Iterator[Step]:
    surplus = [
        slot for slot in seen.observed.cpus if slot.present and slot.thread.socket >= wanted.sockets
    ]
    if not surplus or wanted.paused:
        return  # a stopped guest cannot release anything
    if seen.machine.accelerator == "kvm":
        # Highest first, so that a refusal leaves no gap.
        for slot in reversed(surplus):
            if slot.id is not None:
                yield UnplugCpu(slot.id)
    elif seen.vcpus is None:
        yield Blocked(
            "cpu",
            f"{wanted.sockets} sockets",
            "emulated CPUs are taken offline by the guest agent, and none answers",
        )
    else:
        # QEMU aborts some time after device_del of an emulated CPU; the device stays. The guest
        # numbers its CPUs in the order of the sockets, and sockets are plugged in that order.
        keep = wanted.sockets * seen.machine.cpu.per_socket
        online = tuple(v.logical_id for v in seen.vcpus if v.online and v.logical_id >= keep)
        if online:
            yield SetVcpus(online, online=False)


def _vcpus_to_online(wanted: Wanted, seen: MachineSnapshot) -> Iterator[Step]:
    keep = wanted.sockets * seen.machine.cpu.per_socket
    offline = tuple(v.logical_id for v in seen.vcpus or () if not v.online and v.logical_id < keep)
    if offline and not wanted.paused:
        yield SetVcpus(offline, online=True)


def _memory(wanted: Wanted, seen: MachineSnapshot) -> Iterator[Step]:
    observed, memory = seen.observed.memory, seen.machine.memory
    most = memory.boot_size + memory.headroom
    least = 0 if observed.balloon is not None else memory.boot
    if not least <= wanted.memory <= most:
        reason = f"the machine was started for {memory.boot} to {memory.max} bytes"
        yield Blocked("memory", f"{wanted.memory} bytes", reason)
        return
    requested = memory.requested(wanted.memory)
    answers = seen.agent and not wanted.paused
    if requested > observed.requested and answers and seen.auto_online is None:
        yield PrepareMemory()
    if observed.requested != requested:
        yield RequestMemory(requested)
    elif answers and requested and seen.offline_blocks:
        yield OnlineMemory(seen.offline_blocks)
    # What is plugged goes first, and a guest that is paused gives nothing back.
    held = max(memory.boot - wanted.memory, 0)
    grows = held > observed.ballooned
    if observed.balloon is not None and not (grows and (wanted.paused or observed.plugged)):
        yield from balloon.steps(held, observed.boot, observed.balloon, wanted.after)


def disks(
    wanted: Sequence[Disk],
    seen: MachineSnapshot,
    kept: frozenset[str] = frozenset(),
    copied: Mapping[str, bool] = MappingProxyType({}),
) -> list[Step]:
    """List the steps to the disks that are wanted; empty drives are wanted too.

    What has an id in `kept` stays as it is. A disk with another image or of another kind goes
    first and comes with the next plan; one with an id in `copied` stays and is copied to its image,
    and the guest goes over to that where `copied` is set.
    """
    if seen.observed.run_state not in _CHANGEABLE:
        return []
    return list(_disks(wanted, seen, kept, copied))


def growth(sizes: Mapping[str, int], seen: MachineSnapshot) -> list[Step]:
    """List the steps to drives as large as their images should be, by the images' nodes."""
    if seen.observed.run_state not in _CHANGEABLE:
        return []
    return [
        GrowDisk(drive.id, drive.node, sizes[drive.node])
        for drive in seen.observed.drives
        if drive.node is not None and 0 < drive.size < sizes.get(drive.node, 0)
    ]


def _disks(
    wanted: Sequence[Disk], seen: MachineSnapshot, kept: frozenset[str], copied: Mapping[str, bool]
) -> Iterator[Step]:
    observed = seen.observed
    moving = {disk.id: there for disk in wanted if (there := _moving(disk, observed, copied))}
    targets = frozenset(disk.node for disk in wanted if disk.node and disk.id in moving)
    ends = mirror.surplus(observed.copies, targets)
    yield from ends
    names = {disk.id for disk in wanted} | kept
    for drive in observed.drives:
        if drive.id not in names and not ends:  # one that is copied goes with the next plan
            yield _remove(drive, seen)
    orders = _boot_orders([disk for disk in wanted if observed.drive(disk.id)], seen, names)
    ports = iter(observed.free_ports)
    luns = _free_luns(wanted, observed)
    for disk in wanted:
        there = observed.drive(disk.id)
        if disk.id in moving:
            drive = moving[disk.id]
            assert drive.node is not None
            may, copies = copied[disk.id], observed.copies
            yield from mirror.towards(disk, drive.node, drive.size, copies, switch=may)
        elif there is None and disk.id in copied:
            yield Blocked("disk", disk.id, "it is not attached, so there is nothing to copy")
        elif there is None:
            # Its own place in the order is for the next start if another has it in this one.
            taken = disk.boot_index in orders
            yield _add(replace(disk, boot_index=None) if taken else disk, ports, luns, observed)
        elif observed.devices.get(disk.id, disk.driver) != disk.driver:
            yield _remove(there, seen)
        elif disk.kind == "cdrom" and (there.node != disk.node or there.tray_open):
            yield ChangeMedium(disk)
        elif there.node != disk.node and not ends:
            yield _remove(there, seen)
    wanted_nodes = {disk.node for disk in wanted} | {copy.target for copy in observed.copies}
    for node in observed.idle_nodes:
        if node not in wanted_nodes:
            yield CloseImage(node)  # the guest released its disk after we stopped waiting
    yield from _leftovers(wanted, observed, names)


def _boot_orders(
    plugged: Sequence[Disk], seen: MachineSnapshot, names: set[str]
) -> set[int | None]:
    """Return the places in the boot order that are taken by devices which stay."""
    started = [
        disk
        for disk in seen.machine.disks
        if disk.id in names and seen.observed.drive(disk.id) is not None
    ]
    of_nics = {nic.boot_index for nic in seen.machine.nics}
    return ({disk.boot_index for disk in (*started, *plugged)} | of_nics) - {None}


def _leftovers(wanted: Sequence[Disk], observed: Observed, names: set[str]) -> Iterator[Step]:
    """Yield the steps that take away what drives needed that are gone, or never came."""
    drives = {drive.id for drive in observed.drives}
    for id in observed.devices:
        drive = id.removeprefix(bridge_id(""))
        if id == bridge_id(drive) and drive not in names | drives:
            yield UnplugDisk(drive, None)
    served = {own_thread(id) for id in drives | set(observed.devices)}
    served |= {disk.io_thread for disk in wanted if disk.io_thread is not None}
    for thread in observed.io_threads:
        if thread.startswith(own_thread("")) and thread not in served:
            yield EndThread(thread)


def _moving(disk: Disk, observed: Observed, copied: Mapping[str, bool]) -> Drive | None:
    """Return the drive of a disk that is to be copied, None if it is not, or has been."""
    there = observed.drive(disk.id)
    if disk.id not in copied or there is None or there.node in (None, disk.node):
        return None
    return there


def _remove(drive: Drive, seen: MachineSnapshot) -> Step:
    at_start = {disk.id: disk.driver for disk in seen.machine.disks}
    driver = seen.observed.devices.get(drive.id) or at_start.get(drive.id, "")
    if driver and driver not in MOVABLE:
        return Blocked("disk", drive.id, f"a drive of type {driver} cannot be taken away")
    held = seen.observed.run_state in HELD
    if held and driver == "virtio-blk-pci":
        return Blocked("disk", drive.id, "a paused guest cannot release a virtio disk")
    return UnplugDisk(drive.id, drive.node)


def _add(disk: Disk, ports: Iterator[str], luns: Iterator[int], observed: Observed) -> Step:
    match disk.bus:
        case "scsi":
            return _plug(disk, scsi_place(next(luns) if disk.slot is None else disk.slot))
        case "virtio":
            port = next(ports, None)
            if port is None:
                return Blocked("disk", disk.id, "no PCIe port is free")
            return _plug(disk, port_place(port))
        case "usb" if disk.driver in MOVABLE and USB_CONTROLLER in observed.devices:
            return _plug(disk, usb_place(disk))
        case _:
            return Blocked("disk", disk.id, f"{disk.bus} drives cannot be added")


def _plug(disk: Disk, place: Json) -> PlugDisk:
    return PlugDisk(disk, tuple(place.items()))


def _free_luns(wanted: Sequence[Disk], observed: Observed) -> Iterator[int]:
    taken = {drive.lun for drive in observed.drives}
    taken |= {disk.slot for disk in wanted if disk.bus == "scsi"}
    return (lun for lun in count() if lun not in taken)
