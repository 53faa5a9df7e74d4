"""Disks: the ones a manifest leaves out, and the bus of those that name none."""

from __future__ import annotations

from livevirt.api.request import Object

TARGETS = ("disk", "cdrom", "lun")
DEFAULT_BUS = "sata"  # KubeVirt's, for amd64
#: Volumes that reach the guest in other ways than as a disk.
_NO_DISK = ("memoryDump",)


def add_missing(spec: Object) -> None:
    """Give every volume without a disk or filesystem one, in place."""
    volumes = [v for v in spec.get("volumes") or () if not any(v.get(k) for k in _NO_DISK)]
    devices = spec["domain"].setdefault("devices", {})
    shown = {each["name"] for key in ("disks", "filesystems") for each in devices.get(key) or ()}
    missing = dict.fromkeys(v["name"] for v in volumes if v["name"] not in shown)
    if missing:
        devices["disks"] = [
            *(devices.get("disks") or ()),
            *({"name": name, "disk": {}} for name in missing),
        ]


def target(disk: Object) -> str:
    """Return what the guest sees it as: `disk` unless the manifest says otherwise."""
    return next((each for each in TARGETS if disk.get(each) is not None), "disk")


def set_buses(disks: list[Object]) -> None:
    """Put disks that name no bus on the default one, in place."""
    for disk in disks:
        shown_as = target(disk)
        if disk.get(shown_as) is None:
            disk[shown_as] = {}
        disk[shown_as].setdefault("bus", DEFAULT_BUS)
