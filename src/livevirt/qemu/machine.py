"""A machine to start, as plain data: what is kept on disk before QEMU is spawned.

Two equal machines give equal command lines, which is what a migration target needs; only
`run_dir`, `serial_log` and `incoming` differ there.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from livevirt.qemu.disk import (
    USB_CONTROLLER,
    Disk,
    check_identifier,
    check_name,
    check_path,
    check_text,
)

AcceleratorName = Literal["kvm", "tcg"]
NicModel = Literal["virtio", "e1000", "e1000e", "rtl8139"]
WatchdogAction = Literal["poweroff", "reset", "shutdown"]

WATCHDOG = "watchdog0"
TABLET_PREFIX = "input-"

FIRST_TAP = 200  # descriptors of tap devices in QEMU are numbered from here

MIB = 1024 * 1024
MEMORY_BLOCK = 2 * MIB  # what virtio-mem plugs at a time, unless pages are larger

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_RTC = re.compile(r"utc|localtime|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_SOCKET_PATH_LIMIT = 107  # bytes of sockaddr_un.sun_path, less the closing NUL


class Thread(NamedTuple):
    """One vCPU by its place; sorts in the order the guest counts them at boot."""

    socket: int
    core: int
    thread: int

    @property
    def id(self) -> str:
        return f"cpu-{self.socket}-{self.core}-{self.thread}"


@dataclass(frozen=True, slots=True)
class Feature:
    """A CPU flag that is switched on or off."""

    name: str
    on: bool = True

    def __post_init__(self) -> None:
        check_name("CPU feature", self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The CPUs at boot and the sockets there may ever be."""

    model: str  # QEMU's own: "max", "host", "Skylake-Server", …
    sockets: int = 1
    cores: int = 1
    threads: int = 1
    max_sockets: int = 1
    features: tuple[Feature, ...] = ()

    def __post_init__(self) -> None:
        check_name("CPU model", self.model)
        if min(self.sockets, self.cores, self.threads) < 1 or self.max_sockets < self.sockets:
            raise ValueError(
                f"cannot make {self.sockets} of {self.max_sockets} sockets "
                f"with {self.cores} cores of {self.threads} threads"
            )

    @property
    def per_socket(self) -> int:
        return self.cores * self.threads

    @property
    def type(self) -> str:
        """The driver name that plugs one more of them."""
        return f"{self.model}-x86_64-cpu"

    def threads_of(self, sockets: range) -> Iterator[Thread]:
        """Yield every thread of some sockets, lowest first."""
        for socket in sockets:
            for core in range(self.cores):
                for thread in range(self.threads):
                    yield Thread(socket, core, thread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes at boot and at most; more than boot arrives through virtio-mem."""

    boot: int
    max: int
    page: int | None = None  # bytes of the huge pages it is made of; None: ordinary ones

    def __post_init__(self) -> None:
        if not 0 < self.boot <= self.max:
            raise ValueError(f"cannot boot with {self.boot} of {self.max} bytes of memory")
        if self.page is not None and (self.page < MEMORY_BLOCK or self.page & (self.page - 1)):
            raise ValueError(f"there are no huge pages of {self.page} bytes")

    @property
    def boot_size(self) -> int:
        """What the firmware sees: whole MiB or huge pages, never less than asked for."""
        return _round_up(self.boot, self.page or MIB)

    @property
    def headroom(self) -> int:
        """What can be plugged on top, in whole blocks; 0 means no virtio-mem device."""
        return _round_up(max(0, self.max - self.boot_size), self.block)

    @property
    def block(self) -> int:
        """What virtio-mem plugs at a time."""
        return self.page or MEMORY_BLOCK

    def requested(self, total: int) -> int:
        """Return how much virtio-mem must add so that the guest has `total` bytes."""
        return min(_round_up(max(0, total - self.boot_size), self.block), self.headroom)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """A part of the guest's CPUs and memory that is a part of one of the host's NUMA nodes."""

    host: int  # the host's node
    memory: int  # bytes
    cpus: tuple[Thread, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """A network card: on QEMU's own user-mode network, or on a tap device that QEMU inherits."""

    id: str
    mac: str
    model: NicModel = "virtio"
    mode: Literal["user", "tap"] = "user"
    boot_index: int | None = None
    fd: int | None = None  # the tap device's descriptor in QEMU
    mtu: int | None = None  # that the card offers to the guest

    def __post_init__(self) -> None:
        check_identifier("NIC id", self.id)
        if not _MAC.fullmatch(self.mac):
            raise ValueError(f"NIC {self.id}: {self.mac!r} is not a MAC address in lower case")
        if (self.mode == "tap") != (self.fd is not None):
            raise ValueError(f"NIC {self.id}: a tap device, and no other, has a descriptor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tablet:
    """A pointing device; `slot` is its port on USB, None leaves that to QEMU."""

    name: str
    bus: Literal["usb", "virtio"] = "usb"
    slot: int | None = None

    def __post_init__(self) -> None:
        check_identifier("input", TABLET_PREFIX + self.name)


def tablet_device(name: str, slot: int | None = None) -> dict[str, str]:
    """Return a tablet, for `device_add`."""
    port = {} if slot is None else {"port": str(slot)}
    return {
        "driver": "usb-tablet", "id": TABLET_PREFIX + name, "bus": f"{USB_CONTROLLER}.0", **port,
    }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Smbios:
    """What the guest's firmware tables say about the system; empty fields are left to QEMU."""

    manufacturer: str = ""
    product: str = ""
    version: str = ""
    serial: str = ""
    sku: str = ""
    family: str = ""

    def __post_init__(self) -> None:
        for field in self.__dataclass_fields__:
            check_text(f"SMBIOS {field}", getattr(self, field))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Everything QEMU's command line depends on."""

    name: str
    uuid: str
    accelerator: AcceleratorName
    cpu: Cpu
    memory: Memory
    run_dir: str  # the sockets are made here
    serial_log: str  # what the guest writes to its serial port, appended to

    emulator: str = "qemu-system-x86_64"
    machine_type: str = "q35"
    firmware: Literal["bios"] = "bios"
    disks: tuple[Disk, ...] = ()
    nics: tuple[Nic, ...] = ()
    numa: tuple[NumaNode, ...] = ()  # all CPUs and memory of the boot are in them, if any
    io_threads: tuple[str, ...] = ()  # ids of threads that disks may name
    spare_ports: int = 4  # empty PCIe ports, for disks plugged later
    ports: tuple[tuple[str, int], ...] = ()  # the port of a device by id; else the lowest free
    usb: bool = False  # a USB controller, also without a drive on it
    balloon: bool | None = None  # None: started by an earlier release, without one
    tablets: tuple[Tablet, ...] = ()
    watchdog: WatchdogAction | None = None
    usb_slots: int = 0  # for USB devices of clients, see `usb_socket`
    graphics: bool = False  # a VGA card, seen through `vnc_socket`
    guest_agent: bool = True
    rng: bool = True
    rtc: str = "utc"  # or "localtime" (of the process's TZ), or a moment to start from
    smbios: Smbios = Smbios()
    vmware_port: bool = False  # by which Linux recognises a hypervisor, see decision 10
    paused: bool = False  # wait for `cont`
    incoming: bool = False  # wait for `migrate-incoming`

    def __post_init__(self) -> None:
        check_text("machine name", self.name)
        check_name("machine type", self.machine_type)
        check_path("run directory", self.run_dir)
        check_path("serial log", self.serial_log)
        if not _UUID.fullmatch(self.uuid):
            raise ValueError(f"{self.uuid!r} is not a UUID in lower case")
        if not _RTC.fullmatch(self.rtc):
            raise ValueError(f"{self.rtc!r} is not a clock base")
        if len(self.serial_socket.encode()) > _SOCKET_PATH_LIMIT:
            raise ValueError(f"{self.run_dir!r} is too long a path to hold sockets")
        ids = [disk.id for disk in self.disks] + [nic.id for nic in self.nics]
        if len(set(ids)) < len(ids):
            raise ValueError(f"ids must differ: {sorted(ids)}")
        for id in self.io_threads:
            check_identifier("IO thread id", id)
        if self.numa and sum(node.memory for node in self.numa) != self.memory.boot_size:
            raise ValueError("NUMA nodes must have all the memory of the boot")

    @property
    def qmp_socket(self) -> str:
        """QEMU's monitor. One client at a time: it belongs to the node agent."""
        return str(PurePosixPath(self.run_dir, "qmp.sock"))

    @property
    def serial_socket(self) -> str:
        """The serial console, raw bytes both ways, one client at a time, nothing replayed."""
        return str(PurePosixPath(self.run_dir, "serial.sock"))

    @property
    def agent_socket(self) -> str:
        """The guest agent's channel."""
        return str(PurePosixPath(self.run_dir, "agent.sock"))

    @property
    def vnc_socket(self) -> str:
        """The screen, if the machine has one."""
        return str(PurePosixPath(self.run_dir, "vnc.sock"))

    def usb_socket(self, slot: int) -> str:
        """Return where the USB device of a client is redirected to, one client to each slot."""
        return str(PurePosixPath(self.run_dir, f"usb{slot}.sock"))

    @property
    def migration_socket(self) -> str:
        """Where a machine that waits for a guest is sent one."""
        return str(PurePosixPath(self.run_dir, "guest.sock"))


def recognisable(machine: Machine) -> Machine:
    """Return an emulated machine whose hypervisor Linux recognises, unless its owner objects.

    Recent kernels register hot-plugged CPUs only then, and know no signature of emulation (decision
    10). It has no five-level paging either, with which emulated guests crash now and then.
    """
    chosen = {feature.name for feature in machine.cpu.features}
    off = [] if "la57" in chosen else ["la57"]
    if not machine.smbios.serial and "hypervisor" not in chosen:
        smbios = replace(machine.smbios, serial=f"VMware-{machine.uuid}")
        machine = replace(machine, vmware_port=True, smbios=smbios)
        off.append("hypervisor")
    added = tuple(Feature(name, on=False) for name in off)
    return replace(machine, cpu=replace(machine.cpu, features=(*machine.cpu.features, *added)))


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
