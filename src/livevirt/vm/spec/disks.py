"""Disks: the ones a manifest leaves out, and the bus of those that name none."""

from __future__ import annotations

from livevirt.kube.objects.request import Object, status_of

TARGETS = ("disk", "cdrom", "lun")
DEFAULT_BUS = "sata"  # KubeVirt's, for amd64
#: The buses on which a device of each type can be hotplugged.
HOTPLUG_BUSES = {"disk": ("scsi", "virtio"), "lun": ("scsi",), "cdrom": ("scsi", "usb")}
HOTPLUG_BUS = "scsi"  # of hotpluggable disks; sata cannot hotplug
_CLAIMS = ("persistentVolumeClaim", "dataVolume", "memoryDump")
#: Volumes that reach the guest in other ways than as a disk.
_NO_DISK = ("memoryDump",)


def add_missing(spec: Object) -> None:
    """Give every volume without a disk or filesystem one, in place."""
    devices = spec["domain"].setdefault("devices", {})
    shown = {disk["name"] for disk in devices.get("disks") or ()}
    shown.update(each["name"] for each in devices.get("filesystems") or ())
    unseen = [v for v in spec.get("volumes") or () if v["name"] not in shown]
    missing = dict.fromkeys(v["name"] for v in unseen if not any(v.get(k) for k in _NO_DISK))
    if missing:
        devices["disks"] = [
            *(devices.get("disks") or ()),
            *({"name": name, "disk": {}} for name in missing),
        ]


def target(disk: Object) -> str:
    """Return what the guest sees it as: `disk` unless the manifest sets another."""
    for each in TARGETS:
        if disk.get(each) is not None:
            return each
    return "disk"


def bus(disk: Object) -> str:
    """Return the bus a disk names, empty if it names none."""
    return str((disk.get(target(disk)) or {}).get("bus") or "")


def unordered(disk: Object) -> Object:
    """Return a disk without its place in the boot order."""
    return {key: value for key, value in disk.items() if key != "bootOrder"}


def has_usb_controller(vmi: Object) -> bool:
    """Return whether the machine of a running guest has one; QEMU cannot plug it in."""
    return ((status_of(vmi).get("devices") or {}).get("usb")) is True


def boot_disk(spec: Object) -> str:
    """Return the name of the disk the guest boots from: the first in order, empty if none."""
    disks = ((spec.get("domain") or {}).get("devices") or {}).get("disks") or []
    chosen = sorted((d["bootOrder"], d["name"]) for d in disks if d.get("bootOrder"))
    if chosen:
        return str(chosen[0][1])
    return str(disks[0]["name"]) if disks else ""


def hotpluggable(volume: Object | None) -> bool:
    """Return whether a volume may be hotplugged."""
    return any(((volume or {}).get(source) or {}).get("hotpluggable") for source in _CLAIMS)


def may_come_later(spec: Object) -> set[str]:
    """Return the hotpluggable volumes that a guest can start without, to be given them later.

    It needs the one it boots from, and those on a bus where nothing is plugged into a guest that
    runs; a CD-ROM drive is there from the start, on any bus, and gets its medium.
    """
    found = {volume["name"] for volume in spec.get("volumes") or () if hotpluggable(volume)}
    for disk in ((spec.get("domain") or {}).get("devices") or {}).get("disks") or ():
        shown_as = target(disk)
        if shown_as != "cdrom" and bus(disk) not in HOTPLUG_BUSES[shown_as]:
            found.discard(disk["name"])
    return found - {boot_disk(spec)}


def set_buses(spec: Object) -> None:
    """Put disks that name no bus on the default one, in place.

    The disk of a hotpluggable volume goes where it can be unplugged, at a start too, so that a disk
    plugged into a running guest is on the same bus after a restart.
    """
    silent = []
    for disk in spec["domain"].get("devices", {}).get("disks") or ():
        shown_as = target(disk)
        if disk.get(shown_as) is None:
            disk[shown_as] = {}
        if not disk[shown_as].get("bus"):
            silent.append((disk, shown_as))
    if not silent:
        return
    hot = {volume["name"] for volume in spec.get("volumes") or () if hotpluggable(volume)}
    for disk, shown_as in silent:
        movable = shown_as != "cdrom" and disk["name"] in hot
        disk[shown_as]["bus"] = HOTPLUG_BUS if movable else DEFAULT_BUS
