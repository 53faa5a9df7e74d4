"""Which fields can change while the guest runs, and under what conditions.

This is the one list of them: comparison, verdict, the patch of the instance and the table in the
docs are made from it. A new live field is one more `LiveField`, and what acts on the instance's
field. Why every other field waits for a restart is in `not_live`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from livevirt.kube.objects.request import Object
from livevirt.vm.sizing import guest_size
from livevirt.vm.verdict import device_rules, not_live, size_rules, template_metadata
from livevirt.vm.verdict.comparison import (
    AMOUNTS,
    FOLLOWS,
    VOLUME_PATHS,
    Comparison,
    Path,
    in_vm,
)
from livevirt.vm.verdict.judgement import Reason, Ruling, Verdict
from livevirt.vm.verdict.verdict_inputs import NOT_YET

Rule = Callable[[Comparison, Any, Any], Ruling]  # given the values that run and are wanted


@dataclass(frozen=True, slots=True)
class LiveField:
    """A field that can change live, compared and reported as one value.

    `rule` gives the verdict. `copied`: the instance gets the value as the VM has it; otherwise
    `live_patch` computes what it gets. `confirmed` returns whether the guest of an instance will
    confirm the change; without it there is nothing to confirm. `by` is the reason of a verdict that
    is live; `way` and `unless` are texts for the docs.
    """

    path: Path
    rule: Rule
    by: Reason
    way: str
    unless: str = ""
    copied: bool = True
    confirmed: Callable[[Object], bool] | None = None


# ---------------------------------------------------------------- the list


def no_guest_change(comparison: Comparison, running: Any, wanted: Any) -> Ruling:
    """Rule on a field that livevirt reads from the instance whenever it needs it."""
    message = "the instance has it at once; nothing in the guest changes"
    return Ruling(Verdict.LIVE, Reason.NO_GUEST_CHANGE, message)


def place(comparison: Comparison, running: Any, wanted: Any) -> Ruling:
    """Rule on a field that decides where a guest is placed."""
    message = "the instance has it at once; it decides where the guest is placed next"
    return Ruling(Verdict.LIVE, Reason.NEXT_PLACEMENT, message)


_METADATA = (
    "on the instance and its pods at once, also while other changes wait for a restart; under the"
    " rollout strategy Stage at the next start"
)
_PLACEMENT = "on the instance at once, for its next placement; nothing moves by itself"

FIELDS: tuple[LiveField, ...] = (
    LiveField(
        size_rules.SOCKETS,
        size_rules.sockets,
        Reason.IN_PLACE,
        "up and down, in place: the pod is resized, then whole sockets are plugged; the other way"
        " round to shrink",
        "above maxSockets, below one socket, or fewer on an emulated CPU without a guest agent;"
        " dedicated CPUs need a migration",
        copied=False,
        confirmed=guest_size.cpu_confirmed,
    ),
    LiveField(
        size_rules.GUEST,
        size_rules.guest_memory,
        Reason.IN_PLACE,
        "up and down, in place: the pod is resized, then memory is plugged; the other way round to"
        " shrink; below the size at boot by the balloon, as far as the guest has memory free",
        "above maxGuest, below 128Mi or a quarter of the size at boot, below that size without"
        " balloon statistics or in huge pages, not a multiple of 2Mi (1Gi with such huge pages),"
        " or the guest is realtime, encrypted or maps NUMA nodes through; huge pages need a"
        " migration",
        copied=False,
        confirmed=guest_size.memory_confirmed,
    ),
    *(
        LiveField(
            path,
            functools.partial(size_rules.pod_amount, name=path[-1]),
            Reason.POD_ONLY,
            "up and down, by a resize of the pod; by migration if the pod's QoS class changes or a"
            " limit is removed",
            "the guest's own size is left out, so that it follows this one",
            copied=False,
        )
        for path in AMOUNTS
    ),
    LiveField(
        device_rules.BALLOON,
        device_rules.balloon,
        Reason.DEVICE,
        "the balloon is plugged or unplugged at once",
        "the guest has less memory than it booted with",
    ),
    LiveField(
        device_rules.INPUTS,
        device_rules.inputs,
        Reason.DEVICE,
        "a tablet on USB is plugged or unplugged at once",
        "it is another device or on another bus, or an earlier release started the guest without a"
        " USB controller",
    ),
    LiveField(
        device_rules.RNG,
        device_rules.rng,
        Reason.DEVICE,
        "every guest has a source of random numbers, asked for or not",
    ),
    LiveField(
        device_rules.WATCHDOG,
        device_rules.watchdog,
        Reason.DEVICE,
        "another action is set at once",
        "the watchdog itself is added or removed: its bus cannot be hot-plugged",
    ),
    LiveField(("nodeSelector",), place, Reason.NEXT_PLACEMENT, _PLACEMENT),
    LiveField(("affinity",), place, Reason.NEXT_PLACEMENT, _PLACEMENT),
    LiveField(("tolerations",), place, Reason.NEXT_PLACEMENT, _PLACEMENT),
    LiveField(("topologySpreadConstraints",), place, Reason.NEXT_PLACEMENT, _PLACEMENT),
    LiveField(("schedulerName",), place, Reason.NEXT_PLACEMENT, _PLACEMENT),
    LiveField(("priorityClassName",), place, Reason.NEXT_PLACEMENT, _PLACEMENT),
    LiveField(
        ("terminationGracePeriodSeconds",),
        no_guest_change,
        Reason.NO_GUEST_CHANGE,
        "on the instance at once, for the next shutdown of the guest",
    ),
    LiveField(
        ("evictionStrategy",),
        no_guest_change,
        Reason.NO_GUEST_CHANGE,
        "on the instance at once, for the next eviction",
    ),
    *(
        LiveField(
            (probe,),
            no_guest_change,
            Reason.NO_GUEST_CHANGE,
            "in force at once (`exec` and `guestAgentPing`): the guest keeps its state until the"
            " new probe has reached one of its thresholds",
        )
        for probe in ("readinessProbe", "livenessProbe")
    ),
)
BY_PATH = {field.path: field for field in FIELDS}
BY_VM_PATH = {in_vm(field.path): field for field in FIELDS}
WHOLE = frozenset(BY_PATH)  # fields that are compared as one value, however deep they are


def _following() -> Object:
    found: Object = {}
    for path in (*BY_PATH, *VOLUME_PATHS):
        if path in AMOUNTS:
            continue  # in the instance they follow the size; `baseline` has the owner's
        part = found
        for name in path[:-1]:
            part = part.setdefault(name, {})
        part[path[-1]] = FOLLOWS
    return found


#: Fields that follow the instance rather than the record of its start, for they change while it
#: runs, and the parts they are in. Everything else is as it was started.
FOLLOWING: Object = _following()

#: How edits of volumes and disks go live, for the docs; `volume_edits` has the rules.
VOLUME_ROWS = (
    (Reason.VOLUME_HOTPLUG,
     "volumes, domain.devices.disks: a hotpluggable claim with its disk",
     "added, removed, made read-only or given another claim at once, under every rollout strategy",
     "gate HotplugVolumes is closed, the bus is sata or usb, it comes as a lun, only settings of"
     " the disk change, hotpluggable itself changes, or a disk that stays has the claim"),
    (Reason.BOOT_ORDER,
     "domain.devices.disks: `bootOrder`",
     "set at once, for the next boot of the guest",
     "the rollout strategy is Stage, or the disk changes in another way too"),
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
     "added or removed at once on scsi and usb; its medium, if any, is a hotpluggable claim",
     "gate HotplugVolumes is closed, it is on sata, or on usb in a guest that an earlier release"
     " started without a USB controller"),
)  # fmt: skip

#: Labels and annotations; `template_metadata` has the rules.
METADATA_ROWS = tuple(
    (Reason.NO_GUEST_CHANGE, f"`{template_metadata.path_of(part)}`", _METADATA, "")
    for part in template_metadata.PARTS
)


def rule(comparison: Comparison, path: Path, running: Any, wanted: Any) -> Ruling:
    """Return the ruling on a field other than disks and volumes."""
    found = BY_PATH.get(path)
    if found is not None:
        return found.rule(comparison, running, wanted)
    return Ruling(Verdict.RESTART, Reason.NOT_LIVE, not_live.reason(path))


# ---------------------------------------------------------------- the table for the docs

_LACKING = "not in this release: it waits for a restart (reason NotAvailable)"


def live_table(unsupported: frozenset[Reason] = NOT_YET) -> str:
    """Return the table in Markdown, for nodes that do not support some ways to go live."""
    known = [
        *((field.by, f"`{in_vm(field.path)}`", field.way, field.unless) for field in FIELDS),
        *METADATA_ROWS,
        *VOLUME_ROWS,
    ]
    rows = [
        (name, _LACKING, "") if by in unsupported else (name, way, unless)
        for by, name, way, unless in known
    ]
    lines = ["| field | live | a restart (or a refusal) if |", "|---|---|---|"]
    lines += (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join(lines) + "\n"


def not_live_table() -> str:
    """Return the table in Markdown of the fields that wait for a restart, and why each does."""
    live = {*BY_PATH, *VOLUME_PATHS}
    lines = ["| field | why it waits for a restart |", "|---|---|"]
    lines += (f"| `{in_vm(path)}` | {why} |" for path, why in not_live.rows(live))
    return "\n".join(lines) + "\n"
