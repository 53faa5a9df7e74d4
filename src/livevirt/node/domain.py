"""From a VMI's `spec.domain` to a QEMU machine. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from livevirt.api import quantity
from livevirt.api.request import Object
from livevirt.errors import LivevirtError
from livevirt.node.volumes import Prepared
from livevirt.qemu.accelerator import Accelerator
from livevirt.qemu.disk import Aio, Bus, Cache, Disk, Kind, OnError
from livevirt.qemu.machine import Cpu, Feature, Machine, Memory, Nic, NicModel, Smbios
from livevirt.rollout import identity as stable

DISK_PREFIX = "ua-"  # libvirt's mark of an id that a user chose; KubeVirt's disks have it
NIC_PREFIX = "net-"
DEFAULT_MACHINE = "q35"
_SMALL = 2 * 1024**3  # a guest this small gets few spare ports
_KINDS: tuple[Kind, ...] = ("disk", "cdrom", "lun")
_OFF = ("disable", "forbid")


class BadDomain(LivevirtError):
    """The VMI asks for a machine that cannot be."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a machine's sockets and log are."""

    run_dir: str
    serial_log: str


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
    memory = _memory(domain, vmi.get("status") or {})
    return Machine(
        name=f"{vmi['metadata']['namespace']}_{vmi['metadata']['name']}",
        uuid=firmware_uuid(vmi),
        accelerator=accelerator.name,
        cpu=_cpu(domain.get("cpu") or {}, vmi.get("status") or {}, accelerator),
        memory=memory,
        run_dir=place.run_dir,
        serial_log=place.serial_log,
        machine_type=(domain.get("machine") or {}).get("type") or DEFAULT_MACHINE,
        disks=tuple(_disks(devices.get("disks") or [], volumes)),
        nics=tuple(_nics(vmi, devices)),
        spare_ports=4 if memory.boot <= _SMALL else 8,
        graphics=devices.get("autoattachGraphicsDevice") is not False,
        rng=True,
        rtc=_clock(domain.get("clock") or {}),
        smbios=_smbios(domain.get("chassis") or {}, firmware),
        paused=spec.get("startStrategy") == "Paused",
    )


def identity(vmi: Object) -> str:
    """Return the uid that outlives restarts: the VM's, or the VMI's own if it has none."""
    for owner in vmi["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == "VirtualMachine":
            return str(owner["uid"])
    return str(vmi["metadata"]["uid"])


def firmware_uuid(vmi: Object) -> str:
    """Return the machine's UUID: the one asked for, or one that stays over restarts."""
    given = ((vmi["spec"].get("domain") or {}).get("firmware") or {}).get("uuid")
    return str(given).lower() if given else stable.firmware_uuid(identity(vmi))


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
    told = (status.get("memory") or {}).get("guestAtBoot")
    boot = quantity.parse(told).bytes if told else guest_memory(domain)
    most = (domain.get("memory") or {}).get("maxGuest")
    return Memory(boot=boot, max=max(boot, quantity.parse(most).bytes if most else 0))


def _disks(disks: list[Object], volumes: Mapping[str, Prepared]) -> Iterator[Disk]:
    chosen = any(disk.get("bootOrder") for disk in disks)
    for number, disk in enumerate(disks, 1):
        kind = kind_of(disk)
        target = disk.get(kind) or {}
        prepared = volumes.get(disk["name"])
        if prepared is None and kind != "cdrom":
            continue  # its volume is of a type we do not serve: admission has warned
        yield Disk(
            id=DISK_PREFIX + disk["name"],
            image=prepared.image if prepared else None,
            kind=kind,
            bus=cast(Bus, target.get("bus") or "sata"),
            readonly=bool(target.get("readonly", kind == "cdrom"))
            or (prepared is not None and prepared.readonly),
            # Where nobody chose, the firmware tries them in the order of the list.
            boot_index=disk.get("bootOrder") if chosen else number,
            serial=disk.get("serial") or None,
            cache=_cache(disk, prepared),
            io=_one_of(Aio, disk.get("io"), "threads"),
            discard=prepared.discard if prepared else False,
            shareable=bool(disk.get("shareable")),
            on_error=_one_of(OnError, disk.get("errorPolicy"), None),
        )


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
        mac = interface.get("macAddress") or stable.mac_address(identity(vmi), name)
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
