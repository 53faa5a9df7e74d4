"""What is wrong with the disks and volumes of an instance, with KubeVirt's wording."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from livevirt.kube.objects import names
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import CDROM_GATE, Config
from livevirt.vm.spec.disks import TARGETS, target

INVALID, DUPLICATE = "FieldValueInvalid", "FieldValueDuplicate"
_BUSES = ("virtio", "scsi", "sata", "usb")
_CACHES = ("none", "writethrough", "writeback")
_IO_MODES = ("native", "threads")
_ERROR_POLICIES = ("stop", "ignore", "report", "enospace")
_SERIAL = re.compile(r"[A-Za-z0-9_.+-]+")
_SERIAL_MAX = 256
_PCI = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7]")
_SMALLEST_BLOCK, _LARGEST_BLOCK = 512, 2 * 2**20


def wrong(path: str, message: str, reason: str = INVALID) -> FieldError:
    """Return a field error whose whole message is this."""
    return FieldError(path, reason, message)


def empty_drives(spec: Object) -> frozenset[str]:
    """Return the names of the CD-ROM drives of a spec that are empty."""
    disks = ((spec.get("domain") or {}).get("devices") or {}).get("disks") or ()
    full = {volume["name"] for volume in spec.get("volumes") or ()}
    return frozenset(d["name"] for d in disks if target(d) == "cdrom" and d["name"] not in full)


def disk_errors(
    path: str, spec: Object, config: Config, empty: frozenset[str] = frozenset()
) -> Iterator[FieldError]:
    """Yield what is wrong with the disks of a spec whose defaults are filled in.

    `empty` are the drives that were so before, which no gate forbids any more.
    """
    disks = (spec["domain"].get("devices") or {}).get("disks") or []
    volumes = {volume["name"]: volume for volume in spec.get("volumes") or ()}
    at = f"{path}.domain.devices.disks"
    yield from same_names(at, disks)
    for number, disk in enumerate(disks):
        here = f"{at}[{number}]"
        allowed = config.enabled(CDROM_GATE) or disk["name"] in empty
        yield from _volume_errors(here, disk, volumes.get(disk["name"]), empty_allowed=allowed)
        yield from _target_errors(here, disk)
        yield from _option_errors(here, disk)
        yield from _block_errors(f"{here}.blockSize", disk)


def boot_order_errors(path: str, spec: Object) -> Iterator[FieldError]:
    """Yield boot orders that are no order; disks and interfaces share one."""
    devices = spec["domain"].get("devices") or {}
    taken: set[int] = set()
    for kind in ("disks", "interfaces"):
        for number, device in enumerate(devices.get(kind) or ()):
            here, order = f"{path}.domain.devices.{kind}[{number}]", device.get("bootOrder")
            if order is None:
                continue
            if order < 1:
                message = f"{here} must have a boot order > 0, if supplied"
                yield wrong(f"{here}.bootOrder", message)
            elif order in taken:
                message = f"Boot order for {here}.bootOrder already set for a different device."
                yield wrong(f"{here}.bootOrder", message)
            taken.add(order)


def same_names(at: str, items: list[Object]) -> Iterator[FieldError]:
    """Yield items that have the name of an earlier one."""
    first: dict[str, int] = {}
    for number, item in enumerate(items):
        other = first.setdefault(item["name"], number)
        if other != number:
            message = f"{at}[{other}] and {at}[{number}] must not have the same Name."
            yield wrong(f"{at}[{number}].name", message, DUPLICATE)


def _volume_errors(
    here: str, disk: Object, volume: Object | None, *, empty_allowed: bool
) -> Iterator[FieldError]:
    name = disk["name"]
    for why in names.validate_dns1123_label(name):
        yield wrong(f"{here}.name", why)
    if volume is None:
        if disk.get("cdrom") is None:
            yield wrong(f"{here}.name", f"{here}.Name '{name}' not found.")
        elif not empty_allowed:
            message = f"{CDROM_GATE} feature gate not enabled, cannot define an empty CD-ROM disk"
            yield wrong(f"{here}.name", message)
    elif disk.get("lun") is not None and not (
        volume.get("dataVolume") or volume.get("persistentVolumeClaim")
    ):
        message = f"{here}.lun can only be mapped to a DataVolume or PersistentVolumeClaim volume."
        yield wrong(f"{here}.lun", message)


def _target_errors(here: str, disk: Object) -> Iterator[FieldError]:
    given = [each for each in TARGETS if disk.get(each) is not None]
    if len(given) > 1:
        yield wrong(here, f"{here} can only have a single target type defined")
        return
    shown_as = target(disk)
    at, options = f"{here}.{shown_as}", disk.get(shown_as) or {}
    bus = options.get("bus") or ""
    if bus == "ide":
        yield wrong(f"{at}.bus", "IDE bus is not supported")
    elif bus == "virtio" and shown_as == "cdrom":
        yield wrong(f"{at}.bus", "Bus type virtio is invalid for CD-ROM device")
    elif bus == "sata" and shown_as == "disk" and options.get("readonly"):
        yield wrong(f"{at}.bus", "sata hard-disks do not support read-only.")
    elif bus and bus not in _BUSES:
        listed = " ".join(_BUSES)
        message = f"{here} is set with an unrecognized bus {bus}, must be one of: [{listed}]"
        yield wrong(f"{at}.bus", message)
    if disk.get("dedicatedIOThread") and bus != "virtio":
        message = f"IOThreads are not supported for disks on a {bus} bus"
        yield wrong(f"{here}.dedicatedIOThread", message)
    if address := options.get("pciAddress"):
        if bus != "virtio":
            message = f"disk {here} - setting a PCI address is only possible with bus type virtio."
            yield wrong(f"{at}.pciAddress", message)
        elif not _PCI.fullmatch(address):
            message = f"disk {here} has malformed PCI address ({address})."
            yield wrong(f"{at}.pciAddress", message)


def _option_errors(here: str, disk: Object) -> Iterator[FieldError]:
    serial = disk.get("serial") or ""
    if len(serial) > _SERIAL_MAX:
        message = f"{here} must be less than or equal to {_SERIAL_MAX} in length, if specified"
        yield wrong(f"{here}.serial", message)
    elif serial and not _SERIAL.fullmatch(serial):
        message = (
            f"{here} must be made up of the following characters [A-Za-z0-9_.+-], if specified"
        )
        yield wrong(f"{here}.serial", message)
    if (cache := disk.get("cache")) and cache not in _CACHES:
        yield wrong(f"{here}.cache", f"{here}.cache has invalid value {cache}")
    elif cache and cache != "none" and disk.get("shareable"):
        message = f"a sharable disk requires cache = none got: {cache}"  # KubeVirt's spelling
        yield wrong(f"{here}.cache", message)
    if (mode := disk.get("io")) and mode not in _IO_MODES:
        listed = ", ".join(_IO_MODES)
        message = f"Disk IO mode for {here} is not supported. Supported modes are: {listed}."
        yield wrong(f"{here}.io", message)
    elif mode == "native" and cache in _CACHES and cache != "none":
        # KubeVirt takes it, and its guest does not start: QEMU has no such disk.
        yield wrong(f"{here}.io", f"Disk IO mode native for {here} requires cache = none")
    if (policy := disk.get("errorPolicy")) and policy not in _ERROR_POLICIES:
        yield wrong(f"{here}.errorPolicy", f'{here}.errorPolicy has invalid value "{policy}"')


def _block_errors(at: str, disk: Object) -> Iterator[FieldError]:
    sizes = disk.get("blockSize") or {}
    custom = sizes.get("custom")
    if custom is None:
        return
    if (sizes.get("matchVolume") or {}).get("enabled", "matchVolume" in sizes):
        yield wrong(at, "Block size matching can't be enabled together with a custom value")
        return
    logical, physical = custom.get("logical", 0), custom.get("physical", 0)
    for name, size in (("logical", logical), ("physical", physical)):
        here = f"{at}.custom.{name}"
        if not _SMALLEST_BLOCK <= size <= _LARGEST_BLOCK:
            message = (
                f"Provided size of {size} is not in the range {_SMALLEST_BLOCK} to {_LARGEST_BLOCK}"
            )
            yield wrong(here, message)
        elif size & (size - 1):
            yield wrong(here, f"Provided size of {size} is not a power of 2")
    if logical > physical:
        message = (
            f"Logical size {logical} must be the same or less than the physical size of {physical}"
        )
        yield wrong(f"{at}.custom.logical", message)
    if target(disk) == "disk" and (disk.get("disk") or {}).get("bus") == "sata" and logical != 512:
        yield wrong(f"{at}.custom.logical", "Logical size must be 512 on the sata bus")


_INLINE_MAX = 2048  # bytes of cloud-init data in the object itself
_AT_MOST_ONE = {
    "serviceAccount": "serviceAccount",
    "downwardMetrics": "downwardMetric",
    "memoryDump": "memory dump",
}
_CLOUD_INIT = ("cloudInitNoCloud", "cloudInitConfigDrive")
_USER_DATA = ("userData", "userDataBase64", "secretRef")
_NETWORK_DATA = ("networkData", "networkDataBase64", "networkDataSecretRef")


def sources(volume: Object) -> list[str]:
    """Return the names of the sources a volume gives."""
    return [key for key, value in volume.items() if key != "name" and value is not None]


def volume_errors(path: str, spec: Object) -> Iterator[FieldError]:
    """Yield what is wrong with the volumes of a spec."""
    volumes = spec.get("volumes") or []
    at = f"{path}.volumes"
    yield from same_names(at, volumes)
    for source, shown in _AT_MOST_ONE.items():
        if sum(volume.get(source) is not None for volume in volumes) > 1:
            yield wrong(at, f"{at} must have max one {shown} volume set")
    for number, volume in enumerate(volumes):
        yield from _source_errors(f"{at}[{number}]", volume)


def _source_errors(here: str, volume: Object) -> Iterator[FieldError]:
    given = sources(volume)
    if len(given) != 1:
        yield wrong(here, f"{here} must have exactly one source type set")
        return
    source, value = given[0], volume[given[0]]
    match source:
        case "dataVolume" if not value.get("name"):
            yield wrong(f"{here}.name", "DataVolume 'name' must be set")
        case "persistentVolumeClaim" if not value.get("claimName"):
            yield wrong(f"{here}.persistentVolumeClaim", "PVC 'claimName' must be set")
        case "ephemeral" if not (value.get("persistentVolumeClaim") or {}).get("claimName"):
            yield wrong(f"{here}.ephemeral", "an ephemeral volume must name a claim")
        case "containerDisk":
            yield from _container_disk_errors(f"{here}.containerDisk", value)
        case "emptyDisk":
            if parse(value.get("capacity", 0)).value() < 2**20:
                at = f"{here}.emptyDisk.capacity"
                yield wrong(at, f"the size for volume {volume['name']} is too low")
        case _ if source in _CLOUD_INIT:
            yield from _cloud_init_errors(f"{here}.{source}", value)


def _container_disk_errors(at: str, disk: Object) -> Iterator[FieldError]:
    if not disk.get("image"):
        yield wrong(f"{at}.image", f"{at}.image must name an image")
    path = disk.get("path") or ""
    if not path:
        return
    pure = PurePosixPath(path)
    if str(pure) in ("/", "//"):
        yield wrong(f"{at}.path", f"{at}.path must not point to root")
    elif not pure.is_absolute() or str(pure) != path or ".." in pure.parts:
        message = f"{at}.path must be an absolute path to a file without relative components"
        yield wrong(f"{at}.path", message)


def _cloud_init_errors(at: str, data: Object) -> Iterator[FieldError]:
    user = [name for name in _USER_DATA if data.get(name)]
    network = [name for name in _NETWORK_DATA if data.get(name)]
    if len(user) > 1:
        yield wrong(at, f"{at} must have only one userdatasource set.")
    if len(network) > 1:
        yield wrong(at, f"{at} must have only one networkdata source set.")
    if not user and not network:
        message = f"{at} must have at least one userdatasource or one networkdatasource set."
        yield wrong(at, message)
    for name, secret in (
        ("userData", "UserDataSecretRef"),
        ("networkData", "NetworkDataSecretRef"),
    ):
        yield from _inline_errors(at, data, name, secret)


def _inline_errors(at: str, data: Object, name: str, secret: str) -> Iterator[FieldError]:
    encoded = data.get(f"{name}Base64") or ""
    try:
        size = len(base64.b64decode(encoded, validate=True)) or len((data.get(name) or "").encode())
    except ValueError:  # also what no text of base64 can be: letters beyond ASCII
        here = f"{at}.{name}Base64"
        yield wrong(here, f"{here} is not a valid base64 value.")
        return
    if size > _INLINE_MAX:
        given = f"{name}Base64" if encoded else name
        message = (
            f"{at}.{given} {name.lower()} exceeds {_INLINE_MAX} byte limit."
            f" Should use {secret} for larger data."
        )
        yield wrong(f"{at}.{given}", message)
