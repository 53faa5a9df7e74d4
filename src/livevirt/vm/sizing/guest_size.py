"""What a guest has of its CPUs and memory, why that is not what is wanted, and what to do about it.

The node agent decides with these functions from what QEMU and the guest agent report, `virtctl why`
from the status that the node agent has written. Causes are facts; their wording is one table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object

#: The condition that is False while the guest does not confirm what was plugged in.
CONFIRMED = "SizeConfirmed"
NO_AGENT, NO_COMMAND = "NoGuestAgent", "NotReportedByAgent"


class Cause(StrEnum):
    """Why a guest does not have what is wanted."""

    CPUS_OFFLINE = "CPUsOffline"
    CPUS_NOT_REGISTERED = "CPUsNotRegistered"
    CPUS_NOT_ACCEPTED = "CPUsNotAccepted"
    CPUS_IN_USE = "CPUsInUse"
    CPUS_NEED_AGENT = "CPUsNeedAgent"
    MEMORY_OFFLINE = "MemoryOffline"
    MEMORY_NO_DRIVER = "MemoryNoDriver"
    MEMORY_NOT_TAKEN = "MemoryNotTaken"
    MEMORY_IN_USE = "MemoryInUse"
    MEMORY_UNMOVABLE = "MemoryUnmovable"
    MEMORY_NO_BALLOON_DRIVER = "MemoryNoBalloonDriver"


ADVICE = {
    Cause.CPUS_OFFLINE: (
        "The guest's kernel has the CPUs and leaves them offline. Let it bring new CPUs online with"
        ' a udev rule: SUBSYSTEM=="cpu", ACTION=="add", TEST=="online", ATTR{online}="1"; or now:'
        " echo 1 > /sys/devices/system/cpu/cpuN/online"
    ),
    Cause.CPUS_NOT_REGISTERED: (
        "The guest's kernel does not register CPUs plugged in while it runs. Restart the VM to boot"
        " with them, or run it on a node with KVM"
    ),
    Cause.CPUS_NOT_ACCEPTED: (
        "The guest must support ACPI CPU hotplug. With qemu-guest-agent in it, its CPUs are brought"
        " online and confirmed"
    ),
    Cause.CPUS_IN_USE: "Something in the guest holds on to its CPUs: look at its kernel log",
    Cause.CPUS_NEED_AGENT: "Start qemu-guest-agent in the guest",
    Cause.MEMORY_OFFLINE: (
        "The guest's kernel leaves new memory offline. Add the boot parameter"
        " memhp_default_state=online_movable; or the cloud-init line bootcmd: [echo online_movable"
        ' > /sys/devices/system/memory/auto_online_blocks]; or a udev rule: SUBSYSTEM=="memory",'
        ' ACTION=="add", ATTR{state}="online_movable"'
    ),
    Cause.MEMORY_NO_DRIVER: (
        "The guest needs the virtio-mem driver (Linux 5.8 or later, module virtio_mem)"
    ),
    Cause.MEMORY_NOT_TAKEN: "The guest's virtio-mem driver takes no more: look at its kernel log",
    Cause.MEMORY_IN_USE: (
        "The guest gives back what it can free: end something in it, or restart the VM"
    ),
    Cause.MEMORY_UNMOVABLE: (
        "The guest's kernel keeps data in it that cannot move, because the memory was not brought"
        " online as movable. Restart the VM; with the boot parameter"
        " memhp_default_state=online_movable it can shrink live after that"
    ),
    Cause.MEMORY_NO_BALLOON_DRIVER: (
        "Below the size at boot the guest needs the virtio-balloon driver (module virtio_balloon)"
    ),
}
MAY_NOT_SHRINK = (
    "The guest's kernel may keep data in it that cannot move, so it may not shrink live; the boot"
    " parameter memhp_default_state=online_movable prevents that"
)
UNCONFIRMED = {
    NO_AGENT: "plugged, not confirmed: no guest agent",
    NO_COMMAND: "plugged, not confirmed: the guest agent does not report it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuState:
    """The CPUs of a guest; None is not known."""

    sockets: int  # that the guest uses
    wanted: int
    per_socket: int = 1
    present: int | None = None  # CPUs that its kernel has registered
    agent: bool = True  # whether an agent reports them
    emulated: bool = False

    @property
    def cause(self) -> Cause | None:
        """Why the guest does not use what is wanted."""
        if self.sockets == self.wanted:
            return None
        if self.sockets > self.wanted:
            return Cause.CPUS_IN_USE if self.agent or not self.emulated else Cause.CPUS_NEED_AGENT
        if not self.agent or self.present is None:
            return Cause.CPUS_NOT_ACCEPTED
        registered = self.present >= self.wanted * self.per_socket
        return Cause.CPUS_OFFLINE if registered else Cause.CPUS_NOT_REGISTERED


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """The memory of a guest, in bytes."""

    used: int
    plugged: int
    wanted: int
    boot: int
    agent: bool = True  # whether an agent reports which of it is offline
    unmovable: bool = False  # some was brought online where the kernel may keep it
    ballooned: int = 0  # of the boot memory, given back by the guest
    statistics: bool = True  # whether its balloon driver reports free memory

    @property
    def cause(self) -> Cause | None:
        """Why the guest does not use what is wanted."""
        if self.plugged > self.wanted:
            if self.wanted < self.boot >= self.plugged and not self.statistics:
                return Cause.MEMORY_NO_BALLOON_DRIVER
            return Cause.MEMORY_UNMOVABLE if self.unmovable else Cause.MEMORY_IN_USE
        if self.used < self.plugged:
            return Cause.MEMORY_OFFLINE
        if self.plugged == self.wanted:
            return None
        if self.ballooned:
            return Cause.MEMORY_NO_BALLOON_DRIVER
        if self.plugged <= self.boot:
            return Cause.MEMORY_NO_DRIVER
        # A driver takes no more while too much of what it has is offline.
        return Cause.MEMORY_NOT_TAKEN if self.agent else Cause.MEMORY_OFFLINE


# ---------------------------------------------------------------- as an instance reports it


def cpu_confirmed(vmi: Object) -> bool:
    """Return whether the guest has confirmed its CPUs; False also if its agent cannot."""
    return _topology(vmi).get("confirmed") is not False


def memory_confirmed(vmi: Object) -> bool:
    """Return whether the guest has confirmed its memory; False also if its agent cannot."""
    return _memory(vmi).get("confirmed") is not False


def shrinkable(vmi: Object) -> bool:
    """Return whether all plugged memory is where the guest's kernel can give it back."""
    return _memory(vmi).get("shrinkable") is not False


def reported_cpus(vmi: Object, wanted: int) -> CpuState:
    """Return the CPUs that an instance's status reports."""
    found = _topology(vmi)
    return CpuState(
        sockets=found.get("sockets") or wanted,
        wanted=wanted,
        per_socket=(found.get("cores") or 1) * (found.get("threads") or 1),
        present=found.get("present"),
        agent=found.get("confirmed") is not False,
        emulated=True,
    )


def reported_memory(vmi: Object, wanted: int) -> MemoryState:
    """Return the memory that an instance's status reports."""
    found = _memory(vmi)

    def amount(name: str, default: int) -> int:
        return parse(found[name]).bytes if found.get(name) else default

    used, ballooned = amount("guestCurrent", wanted), amount("guestBallooned", 0)
    return MemoryState(
        used=used,
        plugged=amount("guestPlugged", used + ballooned) - ballooned,
        wanted=wanted,
        boot=amount("guestAtBoot", used),
        agent=found.get("confirmed") is not False,
        unmovable=not shrinkable(vmi),
        ballooned=ballooned,
        statistics=has_balloon_statistics(vmi),
    )


def has_balloon(vmi: Object) -> bool:
    """Return whether the machine of a guest has a balloon."""
    return "guestBallooned" in _memory(vmi)


def has_balloon_statistics(vmi: Object) -> bool:
    """Return whether the balloon driver of a guest has reported free memory since it started."""
    return _memory(vmi).get("balloonStatistics") is True


def possible_sockets(vmi: Object) -> int | None:
    """Return how many sockets the guest's kernel can register until it boots again, if known."""
    found = _topology(vmi)
    possible: int | None = found.get("possible")
    if possible is None:
        return None
    return possible // ((found.get("cores") or 1) * (found.get("threads") or 1))


def _topology(vmi: Object) -> Object:
    return (vmi.get("status") or {}).get("currentCPUTopology") or {}


def _memory(vmi: Object) -> Object:
    return (vmi.get("status") or {}).get("memory") or {}
