"""What is written down before QEMU is started, so that the next run knows what was meant.

The intent is on the disk before the process exists. Found again, it names the process to look
for, by which sockets to talk to it, and in which cgroup it is.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from livevirt.errors import Terminal
from livevirt.node.network.port import GuestPort
from livevirt.qemu.machine import Machine

VERSION = 3
_READABLE = (1, 2, VERSION)  # the first knew no CPUs of a pod's own, the second no migrations
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class UnknownIntent(Terminal):
    """The file was written by a livevirt that knows more than this one."""


class CgroupDir(msgspec.Struct, frozen=True, rename="camel"):
    """The pod's cgroup in the hierarchy of some controllers."""

    path: str
    controllers: tuple[str, ...]
    version: int  # of the hierarchy: 1 or 2


class Limits(msgspec.Struct, frozen=True, rename="camel"):
    """What a pod gets: thousandths of a CPU and bytes. None is no limit."""

    cpu_request: int = 0
    cpu_limit: int | None = None
    memory_limit: int | None = None


class Exclusive(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The CPUs of the machine that are one pod's own, and what runs on which."""

    cpus: tuple[int, ...]
    vcpus: tuple[int, ...] = ()  # the CPU of each vCPU, in the order the guest counts them
    io_threads: dict[str, int] = {}  # the CPU of each IO thread that has one
    emulator: tuple[int, ...] = ()  # where all other threads run


class Incoming(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A guest that is to come from another QEMU instead of being booted."""

    uid: str  # of the migration
    paused: bool = False  # it was paused at the source, and stays so here


class Intent(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One QEMU to be started, for one pod."""

    version: int = VERSION
    boot_id: str
    node: str
    namespace: str
    pod: str
    pod_uid: str
    vmi: str
    vmi_uid: str
    argv: tuple[str, ...]
    machine: Machine
    cgroups: tuple[CgroupDir, ...]
    limits: Limits
    exclusive: Exclusive | None = None
    incoming: Incoming | None = None
    ports: tuple[GuestPort, ...] = ()  # of interfaces that are on the node network
    created: str  # when, as Kubernetes writes times
    sockets: str = ""  # the directory of the sockets as we see it; empty if QEMU sees it there too

    @property
    def qmp_socket(self) -> str:
        """QEMU's monitor, as we see it."""
        return self._seen(self.machine.qmp_socket)

    @property
    def serial_socket(self) -> str:
        """The serial console, as we see it."""
        return self._seen(self.machine.serial_socket)

    @property
    def agent_socket(self) -> str:
        """The guest agent's channel, as we see it."""
        return self._seen(self.machine.agent_socket)

    @property
    def vnc_socket(self) -> str:
        """The VNC server, as we see it."""
        return self._seen(self.machine.vnc_socket)

    def _seen(self, socket: str) -> str:
        return str(Path(self.sockets, Path(socket).name)) if self.sockets else socket


def port_addresses(intent: Intent | None) -> tuple[str, ...]:
    """Return the addresses of a guest's first interface on the node network, if it has one."""
    return intent.ports[0].addresses if intent is not None and intent.ports else ()


class _Version(msgspec.Struct):
    version: int


def encode(intent: Intent) -> bytes:
    return msgspec.json.encode(intent)


def decode(data: bytes) -> Intent:
    """Read an intent back; raises UnknownIntent if we must not touch what it describes."""
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version in _READABLE:
            return msgspec.json.decode(data, type=Intent)
    except msgspec.DecodeError as error:
        raise UnknownIntent(f"a start intent cannot be read: {error}") from error
    raise UnknownIntent(f"a start intent has version {version}, this livevirt knows {VERSION}")


def boot_id() -> str:
    """Return what the kernel calls the time since it was started."""
    return _BOOT_ID.read_text().strip()
