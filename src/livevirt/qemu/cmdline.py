"""The QEMU command line of a machine.

Devices, block nodes and objects are JSON, so nothing in them can be read as another option. The
few options that QEMU takes as `key=value` only are joined by `_options`, which doubles commas.

QEMU pauses instead of exiting when the guest shuts down or panics: the node agent reads why,
then quits it. It starts no process, gains no privilege and reads no configuration file.
"""

import json
from collections.abc import Iterator
from itertools import count

from livevirt.qemu import balloon
from livevirt.qemu import disk as disks
from livevirt.qemu.disk import Disk, Json
from livevirt.qemu.machine import TABLET_PREFIX, WATCHDOG, Machine, Nic, tablet_device

AGENT_PORT = "org.qemu.guest_agent.0"  # the name guests look for
AGENT_CHARDEV = "agent0"
MEMORY_DEVICE = "vm0"
_REDIRECTION_CONTROLLER = "usb1"
_RAM = "ram0"
TCG_CACHE_MIB = 256  # of translated code, see decision 5; unlimited it would grow to 1 GiB

_NICS = {
    "virtio": "virtio-net-pci",
    "e1000": "e1000",
    "e1000e": "e1000e",
    "rtl8139": "rtl8139",
}


def argv(machine: Machine) -> list[str]:
    """Return the whole command line, the program first."""
    line = [machine.emulator, *_basics(machine), *_cpus(machine)]
    for chardev in _chardevs(machine):
        line += ["-chardev", chardev]
    line += ["-mon", "chardev=qmp0,mode=control"]
    if machine.graphics:
        line += ["-vnc", _escape(f"unix:{machine.vnc_socket}")]
    line += _boot_memory(machine)
    if machine.memory.headroom:
        line += ["-object", _json(_hotplug_memory(machine))]
    for id in machine.io_threads:
        line += ["-object", _json({"qom-type": "iothread", "id": id})]
    if machine.rng:
        rng = {"qom-type": "rng-random", "id": "rng0", "filename": "/dev/urandom"}
        line += ["-object", _json(rng)]
    for nic in machine.nics:
        line += ["-netdev", _json(_netdev(nic))]
    for disk in machine.disks:
        if disk.image is not None:
            line += ["-blockdev", _json(disks.blockdev(disk))]
    for device in _devices(machine):
        line += ["-device", _json(device)]
    if machine.paused:
        line.append("-S")
    if machine.incoming:
        line += ["-incoming", "defer"]
    return line


def _basics(machine: Machine) -> list[str]:
    accel = {"kvm": "kvm", "tcg": f"tcg,thread=multi,tb-size={TCG_CACHE_MIB}"}
    line = ["-nodefaults", "-no-user-config", "-display", "none"]
    line += ["-name", _options(guest=machine.name, **{"debug-threads": "on"})]
    line += ["-uuid", machine.uuid]
    memory = f",memory-backend={_RAM}" if machine.memory.page and not machine.numa else ""
    vmport = "on" if machine.vmware_port else "off"
    options = f"usb=off,vmport={vmport},dump-guest-core=off{memory}"
    line += ["-machine", f"{machine.machine_type},{options}"]
    line += ["-accel", accel[machine.accelerator]]
    line += ["-m", _memory_size(machine)]
    line += ["-rtc", _rtc(machine)]
    line += ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]
    watchdog = f",watchdog={machine.watchdog}" if machine.watchdog else ""
    line += ["-action", f"reboot=reset,shutdown=pause,panic=pause{watchdog}"]
    line += ["-msg", "timestamp=on"]
    order = [disk.boot_index for disk in machine.disks] + [nic.boot_index for nic in machine.nics]
    if any(index is not None for index in order):
        line += ["-boot", "strict=on"]  # boot from what was named, or not at all
    tables = {key: getattr(machine.smbios, key) for key in machine.smbios.__dataclass_fields__}
    if any(tables.values()):
        filled = {key: value for key, value in tables.items() if value}
        line += ["-smbios", _options(type="1", **filled)]
    return line


def _rtc(machine: Machine) -> str:
    # Linux and Windows guests both lose ticks under KVM when the host is busy.
    drift = ",driftfix=slew" if machine.accelerator == "kvm" else ""
    return f"base={machine.rtc}{drift}"


def _memory_size(machine: Machine) -> str:
    memory = machine.memory
    size = f"size={memory.boot_size}B"
    if not memory.headroom:
        return size
    return f"{size},maxmem={memory.boot_size + memory.headroom}B"


def _boot_memory(machine: Machine) -> list[str]:
    """Return the memory of the boot, where it is not simply what `-m` makes."""
    if not machine.numa:
        if machine.memory.page is None:
            return []
        return ["-object", _json(_backend(machine, _RAM, machine.memory.boot_size, prealloc=True))]
    line = []
    for number, node in enumerate(machine.numa):
        memory = _backend(machine, f"{_RAM}-{number}", node.memory, prealloc=True)
        memory |= {"host-nodes": [node.host], "policy": "bind"}
        line += ["-object", _json(memory)]
        line += ["-numa", f"node,nodeid={number},memdev={memory['id']}"]
        for cpu in node.cpus:
            place = f"socket-id={cpu.socket},core-id={cpu.core},thread-id={cpu.thread}"
            line += ["-numa", f"cpu,node-id={number},{place}"]
    return line


def _hotplug_memory(machine: Machine) -> Json:
    # Address space only: it costs nothing until the guest is given it.
    return _backend(machine, "vmem0", machine.memory.headroom) | {"reserve": False}


def _backend(machine: Machine, id: str, size: int, *, prealloc: bool = False) -> Json:
    page = machine.memory.page
    if page is None:
        found: Json = {"qom-type": "memory-backend-ram", "id": id, "size": size}
    else:
        # A memory file needs no mounted hugetlbfs and no rights in one.
        found = {
            "qom-type": "memory-backend-memfd",
            "id": id,
            "size": size,
            "dump": False,
            "hugetlb": True,
            "hugetlbsize": page,
        }
    if prealloc:
        # Too few pages, or too few on that NUMA node, must end the start and not the guest later.
        found["prealloc"] = True
    return found


def _cpus(machine: Machine) -> list[str]:
    # -smp makes socket 0 only. The other sockets present at boot are devices with an id, so
    # that they can be taken away again.
    cpu = machine.cpu
    flags = [f"{feature.name}={'on' if feature.on else 'off'}" for feature in cpu.features]
    topology = (
        f"cpus={cpu.per_socket},sockets={cpu.max_sockets},cores={cpu.cores},"
        f"threads={cpu.threads},maxcpus={cpu.max_sockets * cpu.per_socket}"
    )
    return ["-cpu", ",".join([cpu.model, *flags]), "-smp", topology]


def _chardevs(machine: Machine) -> Iterator[str]:
    server = {"server": "on", "wait": "off"}
    yield _options("socket", id="qmp0", path=machine.qmp_socket, **server)
    yield _options(
        "socket",
        id="serial0",
        path=machine.serial_socket,
        **server,
        logfile=machine.serial_log,
        logappend="on",
    )
    if machine.guest_agent:
        yield _options("socket", id=AGENT_CHARDEV, path=machine.agent_socket, **server)
    for slot in range(machine.usb_slots):
        yield _options("socket", id=f"usbredir{slot}", path=machine.usb_socket(slot), **server)


def _devices(machine: Machine) -> Iterator[Json]:
    for thread in machine.cpu.threads_of(range(1, machine.cpu.sockets)):
        yield cpu_device(machine.cpu.type, thread.id, *thread)
    on_ports = list(_devices_on_ports(machine))
    for index in range(len(on_ports) + machine.spare_ports):
        yield _port(index)
    given = dict(machine.ports)
    free = (index for index in count() if index not in given.values())
    for device in on_ports:
        index = given[device["id"]] if device["id"] in given else next(free)
        yield {**device, **disks.port_place(port_id(index))}
    yield {"driver": "pvpanic-pci", "id": "panic0", "bus": "pcie.0", "addr": "0x1e"}
    yield {"driver": "isa-serial", "id": "console0", "chardev": "serial0"}
    if machine.graphics:
        yield {"driver": "VGA", "id": "video0", "bus": "pcie.0", "addr": "0x1"}
    if machine.guest_agent:
        yield {
            "driver": "virtserialport",
            "id": "channel0",
            "bus": "vser0.0",
            "chardev": AGENT_CHARDEV,
            "name": AGENT_PORT,
        }
    if machine.watchdog:
        yield {"driver": "i6300esb", "id": WATCHDOG, "bus": "pcie.0", "addr": "0x1d"}
    for slot in range(machine.usb_slots):
        yield {
            "driver": "usb-redir",
            "id": f"redirected{slot}",
            "chardev": f"usbredir{slot}",
            "bus": f"{_REDIRECTION_CONTROLLER}.0",
        }
    yield from _disks_on_controllers(machine)
    # After the drives, which have had these ports of the controller for longer.
    for tablet in machine.tablets:
        if tablet.bus == "usb":
            yield dict(tablet_device(tablet.name, tablet.slot))


def _devices_on_ports(machine: Machine) -> Iterator[Json]:
    """Yield what sits on a PCIe port of its own, in the order of the ports."""
    yield {"driver": "virtio-scsi-pci", "id": disks.SCSI_CONTROLLER}
    if machine.guest_agent:
        yield {"driver": "virtio-serial-pci", "id": "vser0"}
    if machine.memory.headroom:
        memory: Json = {
            "driver": "virtio-mem-pci",
            "id": MEMORY_DEVICE,
            "memdev": "vmem0",
            "requested-size": 0,
        }
        if machine.memory.page is not None:
            memory["prealloc"] = True  # a guest given a page there is not would end by SIGBUS
        yield memory
    if machine.rng:
        yield {"driver": "virtio-rng-pci", "id": "vrng0", "rng": "rng0"}
    for nic in machine.nics:
        yield _nic(nic)
    for disk in machine.disks:
        if disk.bus == "virtio":
            yield disks.device(disk, {})
    # Last, so that network cards and disks are where a guest without them had them.
    if machine.usb or any(disk.bus == "usb" for disk in machine.disks):
        yield {"driver": "qemu-xhci", "id": disks.USB_CONTROLLER}
    for tablet in machine.tablets:
        if tablet.bus == "virtio":
            yield {"driver": "virtio-tablet-pci", "id": TABLET_PREFIX + tablet.name}
    if machine.balloon:
        yield {"driver": balloon.DRIVER, "id": balloon.DEVICE}
    if machine.usb_slots:  # apart from drives, which need all ports of theirs
        yield {"driver": "qemu-xhci", "id": _REDIRECTION_CONTROLLER}


def occupied_ports(machine: Machine) -> int:
    """Return how many PCIe ports the devices of a machine take from its start."""
    return len(list(_devices_on_ports(machine)))


def _netdev(nic: Nic) -> Json:
    if nic.mode == "tap":
        return {"type": "tap", "id": f"net-{nic.id}", "fd": str(nic.fd)}
    return {"type": "user", "id": f"net-{nic.id}"}


def _nic(nic: Nic) -> Json:
    device: Json = {
        "driver": _NICS[nic.model],
        "id": nic.id,
        "netdev": f"net-{nic.id}",
        "mac": nic.mac,
    }
    if nic.mtu is not None and nic.model == "virtio":
        device["host_mtu"] = nic.mtu
    if nic.boot_index is None:
        device["romfile"] = ""  # no network boot, and no firmware time spent on it
    else:
        device["bootindex"] = nic.boot_index
    return device


def _disks_on_controllers(machine: Machine) -> Iterator[Json]:
    scsi = _slots([disk for disk in machine.disks if disk.bus == "scsi"])
    sata = _slots([disk for disk in machine.disks if disk.bus == "sata"])
    for controller in disks.sata_controllers(list(sata.values())):
        yield {"driver": "ahci", "id": controller, "bus": "pcie.0"}
    for disk in machine.disks:
        match disk.bus:
            case "scsi":
                yield disks.device(disk, disks.scsi_place(scsi[disk.id]))
            case "sata":
                yield disks.device(disk, disks.sata_place(sata[disk.id]))
            case "usb":
                if (bridge := disks.bridge(disk)) is not None:
                    yield bridge
                yield disks.device(disk, disks.usb_place(disk))
            case "virtio":
                pass  # on a port of its own


def _slots(drives: list[Disk]) -> dict[str, int]:
    """Give every drive its slot: its own if it names one, else the lowest that is free."""
    taken = {drive.slot for drive in drives}
    free = (slot for slot in count() if slot not in taken)
    return {drive.id: next(free) if drive.slot is None else drive.slot for drive in drives}


def cpu_device(driver: str, id: str, socket: int, core: int, thread: int) -> Json:
    """Return one vCPU, for `device_add`."""
    return {
        "driver": driver,
        "id": id,
        "socket-id": socket,
        "core-id": core,
        "thread-id": thread,
    }


def port_id(index: int) -> str:
    """Return the id of the n-th PCIe port."""
    return f"port{index}"


def _port(index: int) -> Json:
    slot, function = divmod(index, 8)
    port: Json = {
        "driver": "pcie-root-port",
        "id": port_id(index),
        "bus": "pcie.0",
        "addr": f"{slot + 2:#x}.{function:#x}",  # 0 is the host bridge, 1 the VGA card
        "port": index,
        "chassis": index + 1,
    }
    if function == 0:
        port["multifunction"] = True
    return port


def _json(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"))


def _options(*leading: str, **options: str) -> str:
    return ",".join([*leading, *(f"{key}={_escape(value)}" for key, value in options.items())])


def _escape(value: str) -> str:
    return value.replace(",", ",,")
