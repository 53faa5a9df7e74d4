"""Which disks of a guest are hotpluggable, which it should have, and where each stands. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.request import Object, status_of
from livevirt.node.domain import DISK_PREFIX, drive, kind_of, volume_of
from livevirt.node.volumes import Prepared, claim_size
from livevirt.qemu.disk import Disk, unmarked
from livevirt.qemu.observe import Drive, Observed
from livevirt.vm.sizing import hot_change
from livevirt.vm.sizing.hot_change import ATTACHING, DETACHING
from livevirt.vm.spec.disks import hotpluggable
from livevirt.vm.volumes import volume_migration
from livevirt.vm.volumes.volume_lists import claim_of, read_only
from livevirt.vm.volumes.volume_migration import SWITCHING, Move
from livevirt.vm.volumes.volume_patch import names

READY, UNMOUNTED = "VolumeReady", "VolumeUnMountedFromPod"
IN_USE, CLAIM_IN_USE = "InUseByGuest", "ClaimInUse"
AGENT_SILENT, WAITING_FOR_GUEST = "GuestAgentNotAnswering", "WaitingForGuest"
CANNOT_ATTACH, CANNOT_DETACH = "CannotAttach", "CannotDetach"
CANNOT_GROW = "CannotGrow"
INVALID = "InvalidDisk"
REPLACED = "ClaimReplaced"  # by another one of its name


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a volume is not where it should be."""

    reason: str
    message: str
    mounted: bool = False  # the guest agent has reported that the guest uses it


@dataclass(frozen=True, slots=True)
class Attachment:
    """The state of one hotpluggable volume; `claim` is the one the guest has or gets."""

    phase: Literal["Pending", "Ready", "Detaching"]
    reason: str
    message: str
    claim: Object | None = None
    mounted: bool = False


Attachments = Mapping[str, Attachment]  # by volume


@dataclass(frozen=True, slots=True)
class Item:
    """A disk of an instance whose volume is hotpluggable, or a CD-ROM drive without one."""

    disk: Object
    volume: Object | None
    move: Move | None = None  # what it has is copied to the claim of its volume

    @property
    def hot(self) -> bool:
        """Whether it is hotpluggable; one that is not is here only to be copied."""
        return self.volume is None or hotpluggable(self.volume)

    @property
    def name(self) -> str:
        return str(self.disk["name"])

    @property
    def id(self) -> str:
        return DISK_PREFIX + self.name

    @property
    def claim(self) -> str:
        return claim_of(self.volume or {})


@dataclass(frozen=True, slots=True)
class Goal:
    """What an instance asks for of its disks."""

    items: tuple[Item, ...]
    kept: frozenset[str]  # the drives that are not ours to change, by id
    fixed: tuple[Item, ...] = ()  # those of them that are of a claim, which may grow
    forced: frozenset[str] = frozenset()
    attached: Mapping[str, str] = field(default_factory=dict, compare=False)  # claims by volume
    mounted: frozenset[str] = field(default=frozenset(), compare=False)  # volumes, as reported


def goal(vmi: Object) -> Goal:
    """Read what an instance asks for."""
    spec, status = vmi["spec"], status_of(vmi)
    volumes = {volume["name"]: volume for volume in spec.get("volumes") or ()}
    moves = volume_migration.moves(status)
    items, kept, fixed = [], set(), []
    for disk in (spec["domain"].get("devices") or {}).get("disks") or ():
        volume = volumes.get(disk["name"])
        move = moves.get(disk["name"])
        if move is not None and move.destination != claim_of(volume or {}):
            move = None
        if hotpluggable(volume) or move or (volume is None and kind_of(disk) == "cdrom"):
            items.append(Item(disk, volume, move))
        else:
            kept.add(DISK_PREFIX + disk["name"])
            if claim_of(volume or {}):
                fixed.append(Item(disk, volume))
    attached = {
        each["name"]: (each.get("persistentVolumeClaimInfo") or {}).get("claimName", "")
        for each in status.get("volumeStatus") or ()
    }
    return Goal(
        tuple(items),
        frozenset(kept),
        tuple(fixed),
        frozenset(names(vmi)),
        attached,
        _mounted(status),
    )


def _mounted(status: Object) -> frozenset[str]:
    """Return the volumes that are to go and that the guest agent has reported as mounted."""
    return frozenset(
        each["name"]
        for each in status.get("volumeStatus") or ()
        if each.get("phase") == "Detaching" and each.get("mounted")
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """The drives a guest should have now, those to leave alone, and what is wrong with the rest."""

    disks: tuple[Disk, ...]
    kept: frozenset[str]
    problems: Mapping[str, Problem]  # by volume
    copied: Mapping[str, bool] = field(default_factory=dict)  # by id, and whether it may switch


def wanted(
    asked: Goal, prepared: Mapping[str, Prepared], unready: Mapping[str, Problem], now: Observed
) -> Wanted:
    """Return what to bring a guest to with the volumes that are ready.

    A volume that is not ready keeps what the guest has of it. Whether that is of the claim asked
    for, only the status knows: without the claim its image is unknown.
    """
    disks, kept, problems = [], set(asked.kept), dict(unready)
    for item in asked.items:
        ready = prepared.get(item.name)
        there = now.drive(item.id)
        used = there is not None and there.node is not None
        if ready is None and item.move is not None:
            kept.add(item.id)
            continue
        if ready is None and item.claim and used and asked.attached.get(item.name) == item.claim:
            kept.add(item.id)
            continue
        if ready is None and kind_of(item.disk) != "cdrom":
            continue
        try:
            disks.append(_as_named(_drive(item, ready), now))
        except ValueError as error:
            problems[item.name] = Problem(INVALID, str(error))
            kept.add(item.id)
    moves = {item.id: item.move for item in asked.items}
    copied = {disk.id: move.phase == SWITCHING for disk in disks if (move := moves[disk.id])}
    return Wanted(tuple(disks), frozenset(kept), problems, copied)


def sizes(asked: Goal, prepared: Mapping[str, Prepared]) -> dict[str, int]:
    """Return how large the images of claims are to be, by their nodes in QEMU.

    What is only read is left out: QEMU grows no such image.
    """
    found: dict[str, int] = {}
    for item in (*asked.items, *asked.fixed):
        ready = prepared.get(item.name)
        if ready is None or ready.claim is None or kind_of(item.disk) == "cdrom":
            continue
        with contextlib.suppress(ValueError):  # which is reported for hotpluggable ones
            disk = _drive(item, ready)
            nodes = {disk.node, unmarked(disk).node} if not disk.readonly else set()
            found |= {node: claim_size(ready.claim) for node in nodes if node is not None}
    return found


def _drive(item: Item, ready: Prepared | None) -> Disk:
    """Return the drive that is asked for; the volume may have changed since it was made ready."""
    if ready is not None:
        ready = replace(ready, readonly=read_only(item.volume or {}))
    return drive(item.disk, ready, hot=item.hot)


def _as_named(disk: Disk, now: Observed) -> Disk:
    """Return a disk under the name by which QEMU has it, which may be that of an earlier version.

    Such a name does not show how the disk was requested: it is taken for the one that is wanted.
    """
    known = {drive.node for drive in now.drives} | {copy.target for copy in now.copies}
    return unmarked(disk) if unmarked(disk).node in known else disk


def sharers(asked: Goal, name: str, now: Observed) -> list[str]:
    """Return the other volumes the guest has of the claim of one."""
    items = {item.name: item for item in (*asked.items, *asked.fixed)}
    claim = items[name].claim if name in items else ""
    return [
        other.name
        for other in items.values()
        if claim and other.claim == claim and other.name != name and _is_used(other, now)
    ]


def _is_used(item: Item, now: Observed) -> bool:
    there = now.drive(item.id)
    return there is not None and there.node is not None


def attachments(
    asked: Goal,
    found: Wanted,
    prepared: Mapping[str, Prepared],
    troubles: Mapping[str, Problem],
    now: Observed,
) -> dict[str, Attachment]:
    """Return the state of every hotpluggable volume, by name.

    `troubles` are those of the last attempt to bring the guest to what was `found` wanted.
    """
    disks = {disk.id: disk for disk in found.disks}
    reported: dict[str, Attachment] = {}
    for item in asked.items:
        if not item.hot:
            continue
        ready, there = prepared.get(item.name), now.drive(item.id)
        claim = ready.claim if ready is not None else None
        problem = found.problems.get(item.name) or troubles.get(item.name)
        used = there is not None and there.node is not None
        if (item.id in found.kept and used) or (item.id in disks and _has(disks[item.id], now)):
            if item.claim:
                reported[item.name] = _ready(item.name, troubles.get(item.name), claim)
        elif used and item.move is not None:
            reported[item.name] = _ready(item.name, None, None)  # it has the old claim yet
        elif used:
            reported[item.name] = _detaching(item.name, troubles.get(item.name))
        elif item.claim or problem is not None:
            reported[item.name] = _pending(item.name, problem, claim)
    wanted_ids = {item.id for item in asked.items} | found.kept
    for each in _leaving(wanted_ids, now):
        name = volume_of(each.id)
        reported[name] = _detaching(name, troubles.get(name))
    return reported


def settled(reported: Attachments) -> bool:
    """Return whether every volume is where it should be."""
    return all(_is_settled(each) for each in reported.values())


def condition(reported: Attachments) -> Condition | None:
    """Return the condition of an instance with a volume that is not where it should be."""
    for name, each in sorted(reported.items()):
        if not _is_settled(each):
            message = f"volume {name}: {each.message}"
            return hot_change.condition(hot_change.VOLUME, each.reason, message)
    return None


def _is_settled(each: Attachment) -> bool:
    return (each.phase, each.reason) == ("Ready", READY)


def _has(disk: Disk, now: Observed) -> bool:
    there = now.drive(disk.id)
    same = now.devices.get(disk.id, disk.driver) == disk.driver
    return there is not None and there.node == disk.node and same


def _leaving(wanted_ids: set[str], now: Observed) -> Iterator[Drive]:
    for each in now.drives:
        if each.id.startswith(DISK_PREFIX) and each.id not in wanted_ids:
            yield each


def _ready(name: str, problem: Problem | None, claim: Object | None) -> Attachment:
    found = problem or Problem(READY, f"Successfully attach hotplugged volume {name} to VM")
    return Attachment("Ready", found.reason, found.message, claim)


def _pending(name: str, problem: Problem | None, claim: Object | None) -> Attachment:
    found = problem or Problem(ATTACHING, f"volume {name} is being attached")
    return Attachment("Pending", found.reason, found.message, claim)


def _detaching(name: str, problem: Problem | None) -> Attachment:
    found = problem or Problem(DETACHING, f"volume {name} is being detached")
    return Attachment("Detaching", found.reason, found.message, mounted=found.mounted)
