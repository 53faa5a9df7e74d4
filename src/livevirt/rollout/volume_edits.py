"""When a disk or a CD-ROM of a running guest can come, go or hold something else.

A disk and the volume of its name are judged together. What is live here is so under every rollout
strategy, and no other field of the edit holds it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from livevirt.api.request import Object
from livevirt.rollout.changes import Difference, Name, differences
from livevirt.rollout.config import CDROM_GATE, HOTPLUG_GATE
from livevirt.rollout.disks import target
from livevirt.rollout.ground import Ground, items
from livevirt.rollout.judgement import Reason, Ruling, Verdict

DISKS, VOLUMES = ("domain", "devices", "disks"), ("volumes",)
HOTPLUG_BUSES = {"disk": ("scsi", "virtio"), "lun": ("scsi",)}
_CLAIMS = ("persistentVolumeClaim", "dataVolume", "memoryDump")


@dataclass(frozen=True, slots=True)
class Edit:
    """What is under one name, before and after; None where there is none."""

    name: str
    old_volume: Object | None
    volume: Object | None
    old_disk: Object | None
    disk: Object | None
    bus_given: bool  # whether the owner names the bus of the wanted disk

    @property
    def shown_as(self) -> str:
        """What the guest sees."""
        return target(self.old_disk or self.disk or {})


def rulings(ground: Ground) -> Iterator[tuple[Difference, Ruling]]:
    """Yield what changes in disks and volumes, each with the ruling on it."""
    for edit in edits(ground):
        changed = [
            *differences(edit.old_disk, edit.disk, (*DISKS, Name(edit.name))),
            *differences(edit.old_volume, edit.volume, (*VOLUMES, Name(edit.name))),
        ]
        if changed:
            ruling = _gated(ground, edit, _rule(edit))
            yield from ((difference, ruling) for difference in changed)


def edits(ground: Ground) -> Iterator[Edit]:
    """Yield every name that a disk or volume has, before or after."""
    old_volumes, volumes = items(ground.before, *VOLUMES), items(ground.after, *VOLUMES)
    old_disks, disks = items(ground.before, *DISKS), items(ground.after, *DISKS)
    written = ((ground.case.wanted.get("domain") or {}).get("devices") or {}).get("disks") or ()
    with_bus = {d["name"] for d in written if (d.get(target(d)) or {}).get("bus")}
    for name in dict.fromkeys([*old_disks, *old_volumes, *disks, *volumes]):
        yield Edit(
            name,
            old_volumes.get(name),
            volumes.get(name),
            old_disks.get(name),
            disks.get(name),
            name in with_bus,
        )


def hotpluggable(volume: Object | None) -> bool:
    """Tell whether a volume may come and go while the guest runs."""
    return any(((volume or {}).get(source) or {}).get("hotpluggable") for source in _CLAIMS)


def _rule(edit: Edit) -> Ruling:
    if edit.shown_as == "cdrom" or target(edit.disk or {}) == "cdrom":
        return _drive(edit)
    for volume in (edit.old_volume, edit.volume):
        if volume is not None and not hotpluggable(volume):
            message = f"volume {edit.name} is not marked hotpluggable on both sides of the edit"
            return Ruling(Verdict.RESTART, Reason.NOT_HOTPLUGGABLE, message)
    if edit.old_volume is None and edit.volume is None:
        message = f"disk {edit.name} has no volume that could be plugged"
        return Ruling(Verdict.RESTART, Reason.NOT_HOTPLUGGABLE, message)
    if edit.old_volume == edit.volume:
        message = f"settings of disk {edit.name} are read when it is attached; its volume stays"
        return Ruling(Verdict.RESTART, Reason.DISK_ONLY, message)
    return _buses(edit) or Ruling(
        Verdict.LIVE, Reason.VOLUME_HOTPLUG, "the disk comes or goes while the guest runs"
    )


def _drive(edit: Edit) -> Ruling:
    """Rule on a CD-ROM: the medium comes and goes, the drive itself stays."""
    if edit.old_disk is None or edit.disk is None or edit.old_disk != edit.disk:
        message = f"the CD-ROM drive {edit.name} itself comes, goes or changes at a start only"
        return Ruling(Verdict.RESTART, Reason.DRIVE, message)
    for volume in (edit.old_volume, edit.volume):
        if volume is not None and not hotpluggable(volume):
            message = f"the medium of {edit.name} is not marked hotpluggable"
            return Ruling(Verdict.RESTART, Reason.NOT_HOTPLUGGABLE, message)
    message = "the medium is changed while the guest runs"
    return Ruling(Verdict.LIVE, Reason.MEDIUM_CHANGE, message)


def _buses(edit: Edit) -> Ruling | None:
    """Return the objection to a bus on which nothing comes or goes."""
    for disk, given in ((edit.old_disk, True), (edit.disk, edit.bus_given)):
        if disk is None or not given:
            continue  # a bus that is left open is chosen so that it works
        shown_as = target(disk)
        bus = (disk.get(shown_as) or {}).get("bus", "")
        if bus not in HOTPLUG_BUSES[shown_as]:
            message = f"a {shown_as} on bus {bus} is not plugged or unplugged while the guest runs"
            return Ruling(Verdict.RESTART, Reason.BUS, message)
    return None


def _gated(ground: Ground, edit: Edit, ruling: Ruling) -> Ruling:
    gate = CDROM_GATE if ruling.reason is Reason.MEDIUM_CHANGE else HOTPLUG_GATE
    if ruling.verdict is not Verdict.LIVE or ground.case.config.enabled(gate):
        return ruling
    message = f"feature gate {gate} is not open, so {edit.name} changes at a restart"
    return Ruling(Verdict.RESTART, Reason.GATE_MISSING, message)
