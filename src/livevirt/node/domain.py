"""From a VMI's `spec.domain` to a QEMU machine: devices, CPUs, IO threads. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, Literal, cast, get_args
from zlib import crc32

from livevirt.errors import LivevirtError
from livevirt.kube.objects import quantity
from livevirt.kube.objects.request import Object
from livevirt.node.volumes import Prepared
from livevirt.qemu.accelerator import Accelerator
from livevirt.qemu.cmdline import occupied_ports
from livevirt.qemu.disk import Aio, Bus, Cache, Disk, Kind, OnError, own_thread
from livevirt.qemu.machine import (
    MIB,
    Cpu,
    Feature,
    Machine,
    Memory,
    Nic,
    NicModel,
    NumaNode,
    Smbios,
    Tablet,
    Thread,
    WatchdogAction,
    recognisable,
)
from livevirt.vm.guest.usb import USB_SLOTS
from livevirt.vm.spec import defaults
from livevirt.vm.spec.disks import hotpluggable, may_come_later
from livevirt.vm.volumes.claims import Use, clash, use_of

SUPPLEMENTAL = "supplementalPool"
_POOL = "io"


def served(machine: Machine, domain: Object) -> Machine:
    """Return the machine with the threads a domain asks for; drives may have one already."""
    own = [disk.io_thread for disk in machine.disks if disk.io_thread is not None]
    others = [disk.id for disk in machine.disks if _shares(disk)]
    pool = [f"{_POOL}{n}" for n in range(_pool_size(machine, domain, len(own), len(others)))]
    threads = dict(zip(others, cycle(pool), strict=False)) if pool else {}
    return replace(
        machine,
        io_threads=(*pool, *own),
        disks=tuple(_served(disk, threads.get(disk.id)) for disk in machine.disks),
    )


def plugged(disks: Iterable[Disk], machine: Machine) -> tuple[Disk, ...]:
    """Return disks that come later, each with one of the threads that the machine shares out."""
    own = {disk.io_thread for disk in machine.disks if disk.io_thread == own_thread(disk.id)}
    pool = [id for id in machine.io_threads if id not in own]
    if not pool:
        return tuple(disks)
    # By its id and not by its place in the list, which changes as disks are plugged.
    return tuple(_served(disk, pool[crc32(disk.id.encode()) % len(pool)]) for disk in disks)


def _served(disk: Disk, thread: str | None) -> Disk:
    return replace(disk, io_thread=thread) if _shares(disk) else disk


def _shares(disk: Disk) -> bool:
    return disk.bus == "virtio" and disk.io_thread is None


def supplemental(domain: Object) -> list[str]:
    """Return the ids of the threads that count as CPUs of the pod."""
    if domain.get("ioThreadsPolicy") != SUPPLEMENTAL:
        return []
    return [f"{_POOL}{n}" for n in range(_asked_for(domain))]


def _pool_size(machine: Machine, domain: Object, own: int, others: int) -> int:
    """Return how many threads the disks without one of their own have between them."""
    cpu = domain.get("cpu") or {}
    match domain.get("ioThreadsPolicy"):
        case "shared":
            return 1
        case "auto":
            isolated = cpu.get("dedicatedCpuPlacement") and cpu.get("isolateEmulatorThread")
            most = 1 if isolated else 2 * machine.cpu.sockets * machine.cpu.per_socket
            return max(1, min(others, most - own))
        case policy if policy == SUPPLEMENTAL:
            return _asked_for(domain)
    return 0


def _asked_for(domain: Object) -> int:
    return int((domain.get("ioThreads") or {}).get("supplementalPoolThreadCount") or 0)


DISK_PREFIX = "ua-"  # libvirt's mark of an id that a user chose; KubeVirt's disks have it
NIC_PREFIX = "net-"
DEFAULT_MACHINE = "q35"
_SMALL = 2 * 1024**3  # a guest this small gets few spare ports
_UNCHOSEN = 100
_KINDS: tuple[Kind, ...] = ("disk", "cdrom", "lun")
_OFF = ("disable", "forbid")


class BadDomain(LivevirtError):
    """The VMI asks for a machine that cannot be."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a machine's sockets and log are."""

    run_dir: str
    serial_log: str
    cells: tuple[int, ...] = ()  # the host's NUMA node of each vCPU with a dedicated CPU


def machine(
    vmi: Object, volumes: Mapping[str, Prepared], accelerator: Accelerator, place: Place
) -> Machine:
    """Return the machine a VMI asks for; raises BadDomain if QEMU has none such."""
    try:
        return _machine(vmi, volumes, accelerator, place)
    except (ValueError, KeyError) as error:
        raise BadDomain(f"cannot make a machine of {vmi['metadata']['name']}: {error}") from error


def _machine(
    vmi: Object, volumes: Mapping[str, Prepared], accelerator: Accelerator, place: Place
) -> Machine:
    spec, domain = vmi["spec"], vmi["spec"].get("domain") or {}
    devices, firmware = domain.get("devices") or {}, domain.get("firmware") or {}
    disks = devices.get("disks") or []
    made = Machine(
        name=f"{vmi['metadata']['namespace']}_{vmi['metadata']['name']}",
        uuid=firmware_uuid(vmi),
        accelerator=accelerator.name,
        cpu=_cpu(domain.get("cpu") or {}, vmi.get("status") or {}, accelerator),
        memory=_memory(domain, vmi.get("status") or {}),
        run_dir=place.run_dir,
        serial_log=place.serial_log,
        machine_type=(domain.get("machine") or {}).get("type") or DEFAULT_MACHINE,
        disks=tuple(_disks(spec, disks, volumes)),
        nics=tuple(_nics(vmi, devices)),
        usb=True,
        balloon=devices.get("autoattachMemBalloon") is not False,
        tablets=tuple(map(_tablet, devices.get("inputs") or ())),
        watchdog=_watchdog(devices.get("watchdog")),
        usb_slots=0 if devices.get("clientPassthrough") is None else USB_SLOTS,
        graphics=devices.get("autoattachGraphicsDevice") is not False,
        rng=True,
        rtc=_clock(domain.get("clock") or {}),
        smbios=_smbios(domain.get("chassis") or {}, firmware),
        paused=spec.get("startStrategy") == "Paused",
    )
    if accelerator.name == "tcg":
        made = recognisable(made)
    made = served(made, domain)
    made = replace(made, numa=tuple(_numa(domain.get("cpu") or {}, made, place.cells)))
    return replace(made, spare_ports=_spare_ports(made.memory.boot, occupied_ports(made)))


def tablets(devices: Object) -> Iterator[str]:
    """Yield the names of the tablets on USB."""
    for each in devices.get("inputs") or ():
        if (each.get("bus") or "usb") == "usb":
            yield each["name"]


def _tablet(input: Object) -> Tablet:
    if input.get("type") != "tablet":
        raise ValueError(f"input {input['name']} is not a tablet")
    return Tablet(
        name=input["name"], bus=_one_of(Literal["usb", "virtio"], input.get("bus"), "usb")
    )


def _watchdog(watchdog: Object | None) -> WatchdogAction | None:
    """Return the action of the watchdog a domain asks for, None if it asks for none."""
    if not watchdog:
        return None
    action = (watchdog.get("i6300esb") or {}).get("action")
    return cast(WatchdogAction, _one_of(WatchdogAction, action, "poweroff"))


def boot_order(disks: list[Object]) -> dict[str, int]:
    """Return the place of each disk in the boot order, -1 of one that is not tried.

    Without a boot order, the firmware tries them in the order of the list; what is plugged later
    with an order of its own comes before.
    """
    chosen = any(disk.get("bootOrder") for disk in disks)
    return {
        DISK_PREFIX + disk["name"]: disk.get("bootOrder") or -1 if chosen else _UNCHOSEN + number
        for number, disk in enumerate(disks, 1)
    }


def _spare_ports(memory: int, taken: int) -> int:
    """Return how many PCIe ports to leave empty for disks that come later, as KubeVirt does."""
    total, least = (8, 3) if memory <= _SMALL else (16, 6)
    return max(total - taken, least)


def identity(vmi: Object) -> str:
    """Return the uid that outlives restarts: the VM's, or the VMI's own if it has none."""
    for owner in vmi["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == "VirtualMachine":
            return str(owner["uid"])
    return str(vmi["metadata"]["uid"])


def firmware_uuid(vmi: Object) -> str:
    """Return the machine's UUID: the one asked for, or one that stays over restarts."""
    given = ((vmi["spec"].get("domain") or {}).get("firmware") or {}).get("uuid")
    return str(given).lower() if given else defaults.firmware_uuid(identity(vmi))


def _cpu(cpu: Object, status: Object, accelerator: Accelerator) -> Cpu:
    # What was asked for at its creation; an edit since then is plugged once it runs.
    sockets = (status.get("currentCPUTopology") or {}).get("sockets") or cpu.get("sockets") or 1
    features = [
        Feature(feature["name"], on=feature.get("policy") not in _OFF)
        for feature in cpu.get("features") or ()
    ]
    return Cpu(
        model=accelerator.cpu_model(cpu.get("model") or ""),
        sockets=sockets,
        cores=cpu.get("cores") or 1,
        threads=cpu.get("threads") or 1,
        max_sockets=max(sockets, cpu.get("maxSockets") or 0),
        features=tuple(features),
    )


def guest_memory(domain: Object) -> int:
    """Return the bytes a guest boots with."""
    memory, resources = domain.get("memory") or {}, domain.get("resources") or {}
    given = (
        memory.get("guest")
        or (resources.get("requests") or {}).get("memory")
        or (resources.get("limits") or {}).get("memory")
    )
    if not given:
        raise ValueError("no memory size is given")
    return quantity.parse(given).bytes


def _memory(domain: Object, status: Object) -> Memory:
    at_boot = (status.get("memory") or {}).get("guestAtBoot")
    boot = quantity.parse(at_boot).bytes if at_boot else guest_memory(domain)
    memory = domain.get("memory") or {}
    most, page = memory.get("maxGuest"), (memory.get("hugepages") or {}).get("pageSize")
    return Memory(
        boot=boot,
        max=max(boot, quantity.parse(most).bytes if most else 0),
        page=quantity.parse(page).bytes if page else None,
    )


def _numa(cpu: Object, made: Machine, cells: tuple[int, ...]) -> Iterator[NumaNode]:
    """Yield a node for each of the host's that the guest's CPUs are in, all of equal memory."""
    if (cpu.get("numa") or {}).get("guestMappingPassthrough") is None:
        return
    if not cells:
        raise ValueError("NUMA nodes are passed through to guests with dedicated CPUs only")
    booted = list(made.cpu.threads_of(range(made.cpu.sockets)))
    members: dict[int, list[Thread]] = {cell: [] for cell in sorted(set(cells))}
    for thread, cell in zip(booted, cells, strict=True):
        members[cell].append(thread)
    # QEMU wants to know the node of every CPU that may ever be.
    later = made.cpu.threads_of(range(made.cpu.sockets, made.cpu.max_sockets))
    members[cells[0]] += later
    page = made.memory.page or MIB
    pages, extra = divmod(made.memory.boot_size // page, len(members))
    for number, (cell, threads) in enumerate(members.items()):
        memory = (pages + (1 if number < extra else 0)) * page
        yield NumaNode(host=cell, memory=memory, cpus=tuple(threads))


def _disks(spec: Object, disks: list[Object], volumes: Mapping[str, Prepared]) -> Iterator[Disk]:
    order = boot_order(disks)
    hot, later = _hot(spec), may_come_later(spec)
    for disk in disks:
        name = disk["name"]
        prepared = volumes.get(name)
        if prepared is None and kind_of(disk) != "cdrom":
            continue  # attached later, or of a type we do not serve: admission has warned
        try:
            made = drive(disk, prepared, hot=name in hot)
        except ValueError:
            if name in later:
                continue  # what is wrong with it is reported once the guest runs
            raise
        index = order[made.id]
        yield replace(made, boot_index=index if index > 0 else None)


def volume_of(id: str) -> str:
    """Return the volume that a drive of that id is for."""
    return id.removeprefix(DISK_PREFIX)


def hot_drives(spec: Object, volumes: Mapping[str, Prepared]) -> dict[str, Disk]:
    """Return the drives of hotpluggable volumes, by volume."""
    hot, found = _hot(spec), {}
    for disk in _listed(spec):
        name = disk["name"]
        if name in hot and name in volumes:
            with contextlib.suppress(ValueError):
                found[name] = drive(disk, volumes[name], hot=True)
    return found


def crowded_out(spec: Object, volumes: Mapping[str, Prepared]) -> list[str]:
    """Return the volumes that a guest starts without, for another of its disks has their claim.

    What cannot come later goes first, then the order of the list decides.
    """
    later, found = may_come_later(spec), []
    held: list[Use] = []
    listed = {volume["name"]: volume for volume in spec.get("volumes") or ()}
    disks = [disk for disk in _listed(spec) if disk["name"] in volumes and disk["name"] in listed]
    for disk in sorted(disks, key=lambda disk: disk["name"] in later):
        use = use_of(listed[disk["name"]], disk)
        if disk["name"] in later and any(clash(use, other) for other in held):
            found.append(disk["name"])
        else:
            held.append(use)
    return found


def _listed(spec: Object) -> list[Object]:
    return ((spec.get("domain") or {}).get("devices") or {}).get("disks") or []


def _hot(spec: Object) -> set[str]:
    return {volume["name"] for volume in spec.get("volumes") or () if hotpluggable(volume)}


def drive(disk: Object, prepared: Prepared | None, *, hot: bool) -> Disk:
    """Return the drive that a disk of a spec stands for; raises ValueError if there is none such.

    The volume of a `hot` one is hotpluggable; its name is the serial unless another is given.
    """
    kind = kind_of(disk)
    target = disk.get(kind) or {}
    named = disk["name"] if hot and kind == "disk" else None
    alone = disk.get("dedicatedIOThread") and target.get("bus") == "virtio"
    if kind == "lun" and prepared is not None and not prepared.scsi:
        raise ValueError(
            f"disk {disk['name']}: a lun is a SCSI device of the host, and this claim is kept in a"
            " file; make it a disk on bus scsi"
        )
    made = Disk(
        id=DISK_PREFIX + disk["name"],
        image=prepared.image if prepared else None,
        kind=kind,
        bus=cast(Bus, target.get("bus") or "sata"),
        readonly=bool(target.get("readonly", kind == "cdrom"))
        or (prepared is not None and prepared.readonly),
        boot_index=disk.get("bootOrder"),
        serial=disk.get("serial") or named,
        cache=_cache(disk, prepared),
        io=_one_of(Aio, disk.get("io"), "threads"),
        discard=prepared.discard if prepared else False,
        shareable=bool(disk.get("shareable")),
        on_error=_one_of(OnError, disk.get("errorPolicy"), "stop"),
        io_thread=own_thread(DISK_PREFIX + disk["name"]) if alone else None,
    )
    # A CD-ROM drive stays where it is, and only what it holds is another.
    return replace(made, mark=_mark(disk, made)) if hot and kind != "cdrom" else made


def _mark(disk: Object, made: Disk) -> str:
    """Return a digest of what a drive is that nothing can change while it is plugged in.

    What was found out of its image is left out: it is not another disk when that changes.
    """
    asked = (
        made.readonly,
        made.serial,
        disk.get("cache"),
        made.io,
        made.shareable,
        made.on_error,
        made.io_thread is not None,
    )
    return "|".join(str(each or "") for each in asked)


def kind_of(disk: Object) -> Kind:
    """Return which of its three forms a disk has."""
    return next((kind for kind in _KINDS if kind in disk), "disk")


def _cache(disk: Object, prepared: Prepared | None) -> Cache:
    if disk.get("cache"):
        return cast(Cache, _one_of(Cache, disk["cache"], None))
    return "none" if prepared is not None and prepared.direct else "writethrough"


def _one_of(choices: Any, value: str | None, default: Any) -> Any:
    if not value:
        return default
    if value not in get_args(choices):
        raise ValueError(f"{value!r} is none of {', '.join(get_args(choices))}")
    return value


def _nics(vmi: Object, devices: Object) -> Iterator[Nic]:
    for interface in devices.get("interfaces") or ():
        name = interface["name"]
        mac = interface.get("macAddress") or defaults.mac_address(identity(vmi), name)
        yield Nic(
            id=NIC_PREFIX + name,
            mac=mac.lower().replace("-", ":"),
            model=cast(NicModel, _one_of(NicModel, interface.get("model"), "virtio")),
            boot_index=interface.get("bootOrder"),
        )


def _clock(clock: Object) -> str:
    return "utc" if "timezone" not in clock else "localtime"


def _smbios(chassis: Object, firmware: Object) -> Smbios:
    return Smbios(
        manufacturer=chassis.get("manufacturer") or "livevirt",
        product=chassis.get("product") or "None",
        version=chassis.get("version") or "",
        serial=firmware.get("serial") or chassis.get("serial") or "",
        sku=chassis.get("sku") or "",
        family=chassis.get("family") or "livevirt",
    )
