"""Which fields can change while the guest runs, and under what conditions.

The one list of them: verdicts and the table in the docs are made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from livevirt.vm.verdict import sizes
from livevirt.vm.verdict.changes import Difference, Path
from livevirt.vm.verdict.ground import MEMORY_REQUEST, Ground
from livevirt.vm.verdict.judgement import Reason, Ruling, Verdict

Rule = Callable[[Ground, Difference], Ruling]


@dataclass(frozen=True, slots=True)
class LiveField:
    """A field that can be live, how it gets so; `way` and `unless` are for people."""

    path: Path
    rule: Rule
    by: Reason
    way: str
    unless: str


def place(ground: Ground, difference: Difference) -> Ruling:
    """Rule on a field that decides where a guest is placed."""
    message = "the instance has it at once; it decides where the guest is placed next"
    return Ruling(Verdict.LIVE, Reason.NEXT_PLACEMENT, message)


_PLACEMENT = "on the instance at once, for its next placement; nothing moves by itself"

FIELDS: tuple[LiveField, ...] = (
    LiveField(
        ("domain", "cpu", "sockets"),
        sizes.sockets,
        Reason.IN_PLACE,
        "up and down, in place: the pod is resized, then whole sockets are plugged; the other way"
        " round to shrink",
        "above maxSockets, below one socket, or fewer on an emulated CPU without a guest agent;"
        " dedicated CPUs need a migration",
    ),
    LiveField(
        ("domain", "memory", "guest"),
        sizes.guest_memory,
        Reason.IN_PLACE,
        "up and down, in place: the pod is resized, then memory is plugged; the other way round to"
        " shrink",
        "above maxGuest, below the size at boot, not a multiple of 2Mi (1Gi with such huge pages),"
        " or the guest is realtime, encrypted or maps NUMA nodes through; huge pages need a"
        " migration",
    ),
    LiveField(
        MEMORY_REQUEST,
        sizes.memory_request,
        Reason.IN_PLACE,
        "with `memory.guest`, in the same resize of the pod: so an instance type that overcommits"
        " memory changes it",
        "`memory.guest` is not changed live with it, it was or is left out, or there is a limit",
    ),
    LiveField(("nodeSelector",), place, Reason.NEXT_PLACEMENT, _PLACEMENT, ""),
    LiveField(("affinity",), place, Reason.NEXT_PLACEMENT, _PLACEMENT, ""),
    LiveField(("tolerations",), place, Reason.NEXT_PLACEMENT, _PLACEMENT, ""),
)
BY_PATH = {field.path: field for field in FIELDS}

#: Edits of volumes and disks, how they go live, for people; `volume_edits` has the rules.
VOLUME_ROWS = (
    (Reason.VOLUME_HOTPLUG,
     "volumes, domain.devices.disks: a hotpluggable claim with its disk",
     "added, removed, made read-only or given another claim at once, under every rollout strategy",
     "gate HotplugVolumes is closed, the bus is sata or usb, it comes as a lun, only settings of"
     " the disk change, hotpluggable itself changes, or a disk that stays has the claim"),
    (Reason.MEDIUM_CHANGE,
     "volumes: a hotpluggable claim in a CD-ROM drive",
     "injected, ejected or swapped at once, under every rollout strategy",
     "gate InjectEjectCDROM is closed, or the drive itself changes"),
    (Reason.VOLUME_MIGRATION,
     "volumes: another claim for a volume, with `updateVolumesStrategy: Migration`",
     "copied to that claim while the guest runs, which then goes on with it",
     "the rollout strategy is Stage (a hotpluggable one is replaced at once), it is a lun,"
     " shareable or read-only, or its disk changes too"),
    (Reason.VOLUME_HOTPLUG,
     "domain.devices.disks: a CD-ROM drive",
     "added or removed at once on scsi, and on usb if the guest had such a drive at its start; its"
     " medium, if any, is a hotpluggable claim",
     "gate HotplugVolumes is closed, or it is on sata"),
)  # fmt: skip


def rule(ground: Ground, difference: Difference) -> Ruling:
    """Return the ruling on a field other than disks and volumes."""
    found = BY_PATH.get(difference.path)
    if found is not None:
        return found.rule(ground, difference)
    return Ruling(Verdict.RESTART, Reason.NOT_LIVE, "it is read when the guest starts")
