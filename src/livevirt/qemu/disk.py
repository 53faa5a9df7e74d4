"""A disk or CD-ROM drive of a machine, and the two JSON objects QEMU wants for it.

The same objects go on the command line (`-blockdev`, `-device`) and over QMP (`blockdev-add`,
`device_add`), so a disk plugged into a running machine is the disk the next start gives it.

Identifiers, names and paths are checked here, where a disk or a machine is described: QEMU's option
parsers differ (`-cpu` knows no escaping at all), so a name that could mean more than itself is
refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

# ---------------------------------------------------------------- what QEMU takes as it is

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")  # QEMU: id_wellformed()
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")  # CPU models, features, machine types
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def check_identifier(what: str, value: str) -> None:
    """Refuse what QEMU would not take as the id of a device."""
    if not _IDENTIFIER.fullmatch(value):
        raise ValueError(f"{what} {value!r} is not an identifier QEMU accepts")


def check_name(what: str, value: str) -> None:
    """Refuse what is not a plain name, such as a CPU model."""
    if not _NAME.fullmatch(value):
        raise ValueError(f"{what} {value!r} is not a plain name")


def check_text(what: str, value: str) -> None:
    """Refuse control characters and lone surrogates; everything else can be quoted."""
    if _CONTROL.search(value):
        raise ValueError(f"{what} {value!r} holds a control character")


def check_path(what: str, value: str) -> None:
    """Refuse relative paths (QEMU would read some as a protocol) and unprintable ones."""
    check_text(what, value)
    if not value.startswith("/"):
        raise ValueError(f"{what} {value!r} is not an absolute path")


# ---------------------------------------------------------------- disks

Json = dict[str, Any]

Kind = Literal["disk", "cdrom", "lun"]
Bus = Literal["virtio", "scsi", "sata", "usb"]
Format = Literal["raw", "qcow2"]
Cache = Literal["none", "writeback", "writethrough"]
Aio = Literal["native", "threads", "io_uring"]
OnError = Literal["report", "ignore", "stop", "enospace"]

SCSI_CONTROLLER = "scsi0"
USB_CONTROLLER = "usb0"
_SATA_PORTS = 6  # per AHCI controller; q35 has one built in
NODE_PREFIX = "n-"
_NODE_NAME_LIMIT = 31
_IMAGE_DIGITS, _MARK_DIGITS = 12, 6  # of the digests in a node's name

_DRIVERS: dict[tuple[Kind, Bus], str] = {
    ("disk", "virtio"): "virtio-blk-pci",
    ("disk", "scsi"): "scsi-hd",
    ("disk", "sata"): "ide-hd",
    ("disk", "usb"): "usb-storage",
    ("cdrom", "scsi"): "scsi-cd",
    ("cdrom", "sata"): "ide-cd",
    ("cdrom", "usb"): "scsi-cd",  # behind a bridge; usb-storage makes hard disks only
    ("lun", "scsi"): "scsi-block",
}


#: Drives of which one can be added to a running machine, or taken away.
MOVABLE = frozenset({"virtio-blk-pci", "scsi-hd", "scsi-cd", "scsi-block"})


@dataclass(frozen=True, slots=True)
class Image:
    """Where the bytes are. The format is always given: QEMU must not guess it from user data."""

    path: str
    format: Format = "raw"
    block: bool = False  # a host block device rather than a file
    backing: Image | None = None

    def __post_init__(self) -> None:
        check_path("image path", self.path)
        if self.backing and self.format != "qcow2":
            raise ValueError(f"a {self.format} image has no backing file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """One drive. A CD-ROM without an image is an empty drive."""

    id: str  # the device's id in QEMU
    image: Image | None
    kind: Kind = "disk"
    bus: Bus = "virtio"
    readonly: bool = False
    boot_index: int | None = None
    serial: str | None = None
    cache: Cache = "writethrough"
    io: Aio = "threads"
    discard: bool = True
    shareable: bool = False
    on_error: OnError | None = None
    slot: int | None = None  # LUN on scsi, port on sata and usb; the next free one if not given
    io_thread: str | None = None  # the id of the thread that serves it; None: QEMU's main one
    mark: str = ""  # of how it was asked for, where another way means another device

    def __post_init__(self) -> None:
        check_identifier("disk id", self.id)
        if self.serial is not None:
            check_text("disk serial", self.serial)
        if (self.kind, self.bus) not in _DRIVERS:
            raise ValueError(f"disk {self.id}: a {self.kind} cannot be on the {self.bus} bus")
        if self.image is None and self.kind != "cdrom":
            raise ValueError(f"disk {self.id}: only a CD-ROM drive may be empty")
        if self.kind == "lun" and self.image and not self.image.block:
            raise ValueError(f"disk {self.id}: a lun must be a host block device")
        if self.io == "native" and self.cache != "none":
            raise ValueError(f"disk {self.id}: io native needs cache none")
        if self.io_thread is not None:
            check_identifier("IO thread id", self.io_thread)
            if self.bus != "virtio":
                raise ValueError(f"disk {self.id}: only virtio disks have IO threads")

    @property
    def driver(self) -> str:
        return _DRIVERS[self.kind, self.bus]

    @property
    def node(self) -> str | None:
        """The block node's name. It includes the image and the mark, so a change shows in QEMU."""
        if self.image is None:
            return None
        digest = _digest(_IMAGE_DIGITS, self.id, self.image.path)
        if self.mark:
            digest += _digest(_MARK_DIGITS, self.mark)
        room = _NODE_NAME_LIMIT - len(digest) - len(NODE_PREFIX) - len("-")
        return f"{NODE_PREFIX}{self.id[:room]}-{digest}"


def _digest(digits: int, *parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:digits]


def alike(one: str, other: str) -> bool:
    """Return whether two nodes may be of one disk: names begin with as much of its id as fits."""
    first, second = (each.rpartition("-")[0] for each in (one, other))
    return first.startswith(second) or second.startswith(first)


def same_image(one: str, other: str) -> bool:
    """Return whether two nodes are of one image for one disk, however it was asked for."""
    first, second = (each.rpartition("-")[2][:_IMAGE_DIGITS] for each in (one, other))
    return first == second


def unmarked(disk: Disk) -> Disk:
    """Return a disk under the name that earlier versions gave it, and that guests may have yet."""
    return replace(disk, mark="")


def layers(disk: Disk) -> Iterator[tuple[Image, bool]]:
    """Yield the images of a disk from the top, and whether the guest writes to each."""
    image, writable = disk.image, not disk.readonly and disk.kind != "cdrom"
    while image is not None:
        yield image, writable
        image, writable = image.backing, False


def blockdev(disk: Disk, opened: Mapping[str, str] = MappingProxyType({})) -> Json:
    """Return the block node of a disk that has an image, for `blockdev-add`.

    `opened` is the path by which QEMU finds a file that was opened for it.
    """
    node: Json | None = None
    for image, writable in reversed(list(layers(disk))):
        path = opened.get(image.path, image.path)
        node = _layer(replace(image, path=path), disk, node, readonly=not writable)
    if node is None:
        raise ValueError(f"disk {disk.id} has no image")
    return {"node-name": disk.node, **node}


def _layer(image: Image, disk: Disk, below: Json | None, *, readonly: bool) -> Json:
    cache = {"direct": disk.cache == "none", "no-flush": False}
    file: Json = {
        "driver": "host_device" if image.block else "file",
        "filename": image.path,
        "locking": "on",
        "aio": disk.io,
        "read-only": readonly,
        "cache": cache,
    }
    layer: Json = {"driver": image.format, "read-only": readonly, "cache": cache, "file": file}
    if disk.discard and not readonly:
        file["discard"] = layer["discard"] = "unmap"
    if image.format == "qcow2":
        # null cuts the chain: the header of a user's image may name any file of the host.
        layer["backing"] = below
    return layer


def device(disk: Disk, place: Json) -> Json:
    """Return the drive itself, for `device_add`; `place` is where it is plugged in."""
    found: Json = {"driver": disk.driver, "id": disk.id, **place}
    if disk.node is not None:
        found["drive"] = disk.node
    if disk.boot_index is not None:
        found["bootindex"] = disk.boot_index
    if disk.io_thread is not None:
        found["iothread"] = disk.io_thread
    if disk.kind == "lun":
        return found  # the real device answers for all else
    if disk.serial is not None:
        found["serial"] = disk.serial
    if disk.bus == "scsi":
        # Without either, the guest finds no page 0x83 and makes no /dev/disk/by-id link.
        found["device_id"] = disk.serial or f"drive-{disk.id}"
    if disk.kind == "disk":
        found["write-cache"] = "off" if disk.cache == "writethrough" else "on"
        if disk.shareable:
            found["share-rw"] = True
    if disk.on_error == "enospace":
        found["werror"] = "enospc"  # reading cannot run out of space
    elif disk.on_error is not None:
        found["werror"] = found["rerror"] = disk.on_error
    return found


def own_thread(disk_id: str) -> str:
    """Return the id of the IO thread that serves one disk only, if it has such."""
    return f"io-{disk_id}"


def scsi_place(lun: int) -> Json:
    """Return where on the SCSI controller a disk goes; LUN 0 need not exist."""
    return {"bus": f"{SCSI_CONTROLLER}.0", "channel": 0, "scsi-id": 0, "lun": lun}


def port_place(port: str) -> Json:
    """Return the one slot of a PCIe port; without the address QEMU would hide a second device."""
    return {"bus": port, "addr": "0x0"}


def usb_place(disk: Disk) -> Json:
    """Return where on USB a drive goes: on the controller, or behind the bridge it needs."""
    if disk.kind != "cdrom":
        return _usb_port(disk)
    return {"bus": f"{bridge_id(disk.id)}.0", "scsi-id": 0, "lun": 0}


def _usb_port(disk: Disk) -> Json:
    port = {} if disk.slot is None else {"port": str(disk.slot)}
    return {"bus": f"{USB_CONTROLLER}.0", **port}


def bridge(disk: Disk) -> Json | None:
    """Return the device that must be there before a drive can be, None if it needs none."""
    if (disk.kind, disk.bus) != ("cdrom", "usb"):
        return None
    return {"driver": "usb-bot", "id": bridge_id(disk.id), **_usb_port(disk)}


def bridge_id(disk_id: str) -> str:
    """Return the id of the bridge that a drive is behind, if it is behind one."""
    return f"bot-{disk_id}"


def sata_place(slot: int) -> Json:
    """Return the SATA port of the n-th drive."""
    controller, port = divmod(slot, _SATA_PORTS)
    return {"bus": f"ide.{port}" if controller == 0 else f"ahci{controller}.{port}"}


def sata_controllers(slots: list[int]) -> list[str]:
    """List the ids of the controllers that drives on these slots need besides the built-in one."""
    return [f"ahci{n}" for n in range(1, max(slots, default=0) // _SATA_PORTS + 1)]
