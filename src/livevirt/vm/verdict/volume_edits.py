"""When a disk or CD-ROM of a running guest can be attached, detached or changed.

A disk and the volume of its name are judged together. What is live here is live under every rollout
strategy, and no other field of the edit holds it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from livevirt.vm.config.settings import CDROM_GATE, HOTPLUG_GATE
from livevirt.vm.spec import disks
from livevirt.vm.spec.disks import HOTPLUG_BUSES, hotpluggable, target
from livevirt.vm.verdict.comparison import (
    Comparison,
    Differences,
    Name,
    VolumeEdit,
    about,
    differences,
    items,
)
from livevirt.vm.verdict.judgement import Reason, Ruling, Verdict
from livevirt.vm.volumes import volume_migration
from livevirt.vm.volumes.claims import clash, use_of
from livevirt.vm.volumes.volume_lists import claim_of, read_only, without_port

DISKS, VOLUMES = ("domain", "devices", "disks"), ("volumes",)
_PLUGGED = Ruling(
    Verdict.LIVE, Reason.VOLUME_HOTPLUG, "the disk is attached or detached while the guest runs"
)
_STAYS = Ruling(
    Verdict.LIVE, Reason.VOLUME_HOTPLUG, "it is the same claim, and nothing changes in the guest"
)
_CHANGED = Ruling(Verdict.LIVE, Reason.MEDIUM_CHANGE, "the medium is changed while the guest runs")

_PLUGGED_REASONS = (Reason.VOLUME_HOTPLUG, Reason.MEDIUM_CHANGE)


@dataclass(frozen=True, slots=True)
class _DriveRulings:
    """The rulings on the disk, or drive, of an edit and on its volume."""

    disk: Ruling
    volume: Ruling


def rulings(comparison: Comparison) -> Iterator[Ruling]:
    """Yield the ruling on everything that changes in disks and volumes."""
    found = {edit.name: edit for edit in edits(comparison)}
    changes = {name: each for name, edit in found.items() if any(each := _differences(edit))}
    ruled = {name: _ruled(comparison, found[name]) for name in changes}
    live = [found[name] for name, each in ruled.items() if each.disk.verdict is Verdict.LIVE]
    portless = without_port(comparison.inputs.vmi or {}, live)
    kept = [found[name] for name, each in ruled.items() if each.volume.verdict is not Verdict.LIVE]
    for name, (disk, volume) in changes.items():
        edit, rules = found[name], ruled[name]
        if rules.volume.reason in _PLUGGED_REASONS and (other := _holder(edit, kept)):
            rules = _both(_claim_stays(edit, other))
        elif name in portless and rules.disk is _PLUGGED:
            rules = _both(_no_port(edit))
        yield from (about(rules.disk, *each, volume=name) for each in disk)
        yield from (about(rules.volume, *each, volume=name) for each in volume)


def _differences(edit: VolumeEdit) -> tuple[Differences, Differences]:
    """Return what changes in a disk, and in its volume."""
    name = Name(edit.name)
    return (
        differences(edit.old_disk, edit.disk, (*DISKS, name)),
        differences(edit.old_volume, edit.volume, (*VOLUMES, name)),
    )


def edits(comparison: Comparison) -> Iterator[VolumeEdit]:
    """Yield every name that a disk or volume has, before or after."""
    old_volumes, volumes = items(comparison.before, *VOLUMES), items(comparison.after, *VOLUMES)
    old_disks, wanted = items(comparison.before, *DISKS), items(comparison.after, *DISKS)
    for name in dict.fromkeys([*old_disks, *old_volumes, *wanted, *volumes]):
        yield VolumeEdit(
            name, old_volumes.get(name), volumes.get(name), old_disks.get(name), wanted.get(name)
        )


def _ruled(comparison: Comparison, edit: VolumeEdit) -> _DriveRulings:
    found = _ungated(comparison, edit)
    return _DriveRulings(
        _gated(comparison, edit, found.disk), _gated(comparison, edit, found.volume)
    )


def _boot_order(comparison: Comparison, edit: VolumeEdit) -> Ruling | None:
    """Return the ruling on a disk of which just the boot order changes, None if more does."""
    before, after = edit.old_disk, edit.disk
    if before is None or after is None or edit.old_volume != edit.volume:
        return None
    if before == after or disks.unordered(before) != disks.unordered(after):
        return None
    if not comparison.inputs.config.live_update:
        message = "the rollout strategy is Stage: the boot order waits for a restart"
        return Ruling(Verdict.RESTART, Reason.STAGE, message)
    message = "the firmware follows it at the next boot of the guest"
    return Ruling(Verdict.LIVE, Reason.BOOT_ORDER, message)


def _ungated(comparison: Comparison, edit: VolumeEdit) -> _DriveRulings:
    if (order := _boot_order(comparison, edit)) is not None:
        return _both(order)
    copied = volume_migration.ruling(comparison, edit)
    if copied is not None:
        settings = edit.old_disk and edit.disk and edit.old_disk != edit.disk
        live = copied.verdict is Verdict.LIVE
        return _DriveRulings(_settings(edit) if settings and live else copied, copied)
    return _drive(comparison, edit) if edit.is_drive else _disk(edit)


def _disk(edit: VolumeEdit) -> _DriveRulings:
    for volume in (edit.old_volume, edit.volume):
        if volume is not None and not hotpluggable(volume):
            message = f"volume {edit.name} is not marked hotpluggable on both sides of the edit"
            return _both(Ruling(Verdict.RESTART, Reason.NOT_HOTPLUGGABLE, message))
    if edit.old_volume is None and edit.volume is None:
        message = f"disk {edit.name} has no volume that could be plugged"
        return _both(Ruling(Verdict.RESTART, Reason.NOT_HOTPLUGGABLE, message))
    if not _same_claim(edit):
        return _both(_buses(edit) or _PLUGGED)
    if read_only(edit.old_volume or {}) == read_only(edit.volume or {}):
        return _DriveRulings(_settings(edit), _STAYS)
    return _both(_buses(edit) or _replugged(edit))


def _same_claim(edit: VolumeEdit) -> bool:
    """Return whether a volume stays the same claim, even if it is written differently."""
    if edit.old_volume == edit.volume:
        return True
    claims = {claim_of(volume or {}) for volume in (edit.old_volume, edit.volume)}
    return len(claims) == 1 and "" not in claims


def _replugged(edit: VolumeEdit) -> Ruling:
    how = "read-only" if read_only(edit.volume or {}) else "writable"
    message = f"the disk goes and comes back {how} while the guest runs"
    return Ruling(Verdict.LIVE, Reason.VOLUME_HOTPLUG, message)


def _settings(edit: VolumeEdit) -> Ruling:
    message = f"settings of disk {edit.name} are read when it is attached; its volume stays"
    return Ruling(Verdict.RESTART, Reason.DISK_ONLY, message)


def _drive(comparison: Comparison, edit: VolumeEdit) -> _DriveRulings:
    """Rule on a CD-ROM: the medium can be swapped, the drive hotplugged where its bus allows."""
    for volume in (edit.old_volume, edit.volume):
        if volume is not None and not hotpluggable(volume):
            message = f"the medium of {edit.name} is not marked hotpluggable"
            return _both(Ruling(Verdict.RESTART, Reason.NOT_HOTPLUGGABLE, message))
    if edit.old_disk == edit.disk:
        return _both(_CHANGED)
    objection = _drive_objection(comparison, edit)
    if objection is None:
        return _both(_PLUGGED)
    ruling = Ruling(Verdict.RESTART, Reason.DRIVE, objection)
    gone = edit.disk is None and edit.volume is None
    return _DriveRulings(ruling, _CHANGED if gone else ruling)  # the drive stays, but empty


def _drive_objection(comparison: Comparison, edit: VolumeEdit) -> str | None:
    """Return why a CD-ROM drive cannot be hotplugged."""
    if edit.old_disk is not None and edit.disk is not None:
        return f"the CD-ROM drive {edit.name} itself changes at a start only"
    bus = disks.bus(edit.old_disk or edit.disk or {})
    if bus not in HOTPLUG_BUSES["cdrom"]:
        return (
            f"the CD-ROM drive {edit.name} is on {bus}, where drives are fixed while the guest runs"
        )
    if bus == "usb" and edit.old_disk is None and not _has_usb(comparison):
        return f"the guest was started without a usb controller, so {edit.name} comes at a start"
    return None


def _has_usb(comparison: Comparison) -> bool:
    if disks.has_usb_controller(comparison.inputs.vmi or {}):
        return True
    listed = comparison.started["domain"].get("devices", {}).get("disks") or ()
    return any(disks.bus(disk) == "usb" for disk in listed)


def _buses(edit: VolumeEdit) -> Ruling | None:
    """Return the objection to a bus without hotplug, or to a lun."""
    for disk in (edit.old_disk, edit.disk):
        if disk is None:
            continue
        shown_as, bus = target(disk), disks.bus(disk)
        if bus not in HOTPLUG_BUSES[shown_as]:
            message = f"a {shown_as} on bus {bus} is not plugged or unplugged while the guest runs"
            return Ruling(Verdict.RESTART, Reason.BUS, message)
    if edit.volume is not None and edit.disk is not None and target(edit.disk) == "lun":
        message = f"{edit.name} is a lun: it takes a SCSI device of the host, and no claim is one"
        return Ruling(Verdict.RESTART, Reason.NOT_AVAILABLE, message)
    return None


def _holder(edit: VolumeEdit, kept: Iterable[VolumeEdit]) -> VolumeEdit | None:
    """Return which of the volumes that stay until a restart has the claim that one is to get."""
    if edit.volume is None or edit.disk is None or _same_claim(edit):
        return None
    use = use_of(edit.volume, edit.disk)
    for other in kept:
        if other.old_volume is None or other.old_disk is None:
            continue
        if clash(use, use_of(other.old_volume, other.old_disk)) and not _same_claim(other):
            return other
    return None


def _claim_stays(edit: VolumeEdit, other: VolumeEdit) -> Ruling:
    claim = claim_of(edit.volume or {})
    message = f"volume {other.name} has PVC {claim} until a restart, and {edit.name} gets it then"
    return Ruling(Verdict.RESTART, Reason.CLAIM_IN_USE, message)


def _no_port(edit: VolumeEdit) -> Ruling:
    message = (
        f"no PCIe port is free for {edit.name}: it waits until a virtio disk goes, or for a"
        " restart; on bus scsi it needs none"
    )
    return Ruling(Verdict.LIVE, Reason.NO_PORT, message, waits=True)


def _both(ruling: Ruling) -> _DriveRulings:
    return _DriveRulings(ruling, ruling)


def _gated(comparison: Comparison, edit: VolumeEdit, ruling: Ruling) -> Ruling:
    gate = CDROM_GATE if ruling.reason is Reason.MEDIUM_CHANGE else HOTPLUG_GATE
    copied = ruling.reason in (Reason.VOLUME_MIGRATION, Reason.BOOT_ORDER)
    if ruling.verdict is not Verdict.LIVE or copied or comparison.inputs.config.enabled(gate):
        return ruling
    message = f"feature gate {gate} is not open, so {edit.name} changes at a restart"
    return Ruling(Verdict.RESTART, Reason.GATE_MISSING, message)
