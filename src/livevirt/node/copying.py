"""How far the copies of a guest's volumes are, and what is reported of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from livevirt.kube.control import backoff
from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.request import Object, status_of
from livevirt.node.attachments import Goal, Problem, Wanted
from livevirt.node.domain import volume_of
from livevirt.qemu.disk import Disk, alike
from livevirt.qemu.observe import Observed
from livevirt.vm.sizing import hot_change
from livevirt.vm.volumes import volume_migration
from livevirt.vm.volumes.volume_migration import COPIED, COPYING, SWITCHING, VOLUMES_CHANGE, Move

COPY_FAILED = "CopyFailed"
_ON_THE_WAY = ("PVCNotReady", "DataVolumeNotReady")  # problems that pass by themselves
DONE = "Done"  # nothing of the old claim is open any more
_FIRST_WAIT, _LONGEST_WAIT = 2.0, 120.0  # seconds until a copy that failed is tried again


@dataclass(frozen=True, slots=True)
class Progress:
    """Where one copy stands."""

    move: Move
    phase: str
    how: str
    problem: Problem | None = None


Copies = Mapping[str, Progress]  # by volume
Nodes = frozenset[str | None]


def copies(
    asked: Goal, found: Wanted, troubles: Mapping[str, Problem], now: Observed
) -> dict[str, Progress]:
    """Return where the copies stand that an instance asks for, by volume.

    `troubles` are those of the last attempts, by volume.
    """
    disks = {disk.id: disk for disk in found.disks}
    nodes = frozenset(disk.node for disk in found.disks)
    reported: dict[str, Progress] = {}
    for item in asked.items:
        if item.move is not None:
            problem = found.problems.get(item.name) or troubles.get(item.name)
            reported[item.name] = _progress(item.move, disks.get(item.id), problem, now, nodes)
    return reported


def _progress(
    move: Move, disk: Disk | None, problem: Problem | None, now: Observed, nodes: Nodes
) -> Progress:
    if disk is None or disk.node is None:
        return Progress(move, COPYING, "to be copied", problem)
    there = now.drive(disk.id)
    if there is not None and there.node == disk.node:
        phase = SWITCHING if _is_open(disk.node, now, nodes) else DONE
        return Progress(move, phase, "copied")
    copy = next((each for each in now.copies if each.target == disk.node), None)
    if copy is None or copy.over:
        return Progress(move, COPYING, "to be copied", problem)
    if copy.ready:
        return Progress(move, SWITCHING if move.phase == SWITCHING else COPIED, "copied")
    return Progress(move, COPYING, f"{copy.percent}% copied")


def _is_open(node: str, now: Observed, wanted: Nodes) -> bool:
    """Return whether anything but its image is open of a drive, or its copy still to be forgotten.

    A node is named by the beginning of its drive's id, which other drives may share; so nothing
    that is `wanted` of any of them counts.
    """
    others = (each for each in now.idle_nodes if each not in wanted)
    copied = any(copy.target == node for copy in now.copies)
    return copied or any(alike(each, node) for each in others)


def settled(reported: Copies) -> bool:
    """Return whether nothing is left to copy."""
    return all(each.phase == DONE for each in reported.values())


def listed(vmi: Object, reported: Copies) -> list[Object]:
    """Return `migratedVolumes` of an instance: the copies under way, each with its phase."""
    found: list[Object] = []
    moves = volume_migration.moves(vmi.get("status"))
    for entry in status_of(vmi).get("migratedVolumes") or ():
        progress = reported.get(entry["volumeName"])
        if progress is None or not _is_of(progress, moves[entry["volumeName"]]):
            found.append(entry)  # not observed yet
        elif progress.phase != DONE:
            found.append(entry | {"phase": progress.phase})
    return found


def _is_of(progress: Progress, move: Move) -> bool:
    """Return whether what was seen is of this copy and not of one that was wanted before."""
    return (progress.move.destination, progress.move.phase) == (move.destination, move.phase)


def with_condition(
    vmi: Object, present: list[Condition], reported: Copies, now: datetime
) -> list[Condition]:
    """Return the conditions of an instance with what is true of the volumes still to be copied.

    The condition goes in the write that drops the last of them. If they are gone and it is still
    there, the VM has taken them out.
    """
    moving = listed(vmi, reported)
    if not moving:
        if status_of(vmi).get("migratedVolumes"):
            return conditions.without_condition(present, VOLUMES_CHANGE)
        if conditions.find(present, VOLUMES_CHANGE) is None:
            return present
        return conditions.replaced(present, volume_migration.cancelled(), now)
    found = [reported[name] for each in moving if (name := each["volumeName"]) in reported]
    return conditions.replaced(present, _condition(found), now) if found else present


def _condition(found: list[Progress]) -> Condition:
    """Return what is true of copies; while none can be, nothing changes.

    A new claim that is still being bound or filled is on its way.
    """
    stuck = next((each for each in found if each.problem is not None), None)
    if stuck is not None and stuck.problem is not None:
        how, reason = stuck.problem.message, stuck.problem.reason
        status = "False" if all(map(_is_stuck, found)) else "True"
        return volume_migration.condition([stuck.move], reason, how, status)
    reason = SWITCHING if all(each.phase == SWITCHING for each in found) else COPYING
    if len(found) == 1:
        return volume_migration.condition([found[0].move], reason, found[0].how)
    message = "; ".join(f"{each.how}: {each.move.description}" for each in found)
    return hot_change.condition(VOLUMES_CHANGE, reason, message)


def _is_stuck(progress: Progress) -> bool:
    return progress.problem is not None and progress.problem.reason not in _ON_THE_WAY


@dataclass(slots=True)
class _Failure:
    problem: Problem
    attempts: int
    until: float


@dataclass(slots=True)
class Failures:
    """Copies that failed, by the node they were to: when to try again, less and less often."""

    _known: dict[str, _Failure] = field(default_factory=dict)

    def see(self, wanted: Wanted, now: Observed, time: float) -> list[str]:
        """Remember the copies that have failed, for soon QEMU forgets; return why they did.

        Of copies that are not wanted any more all is forgotten.
        """
        nodes = {disk.node for disk in wanted.disks if disk.node and disk.id in wanted.copied}
        self._known = {node: each for node, each in self._known.items() if node in nodes}
        reached = {drive.node for drive in now.drives}
        found = []
        for copy in now.copies:
            if copy.over and copy.target in nodes - reached:
                found.append(copy.error or "QEMU ended it")
                message = f"the copy failed: {found[-1]}; it is tried again"
                self.note(copy.target, Problem(COPY_FAILED, message), time)
        return found

    def note(self, node: str, problem: Problem, now: float) -> None:
        """Remember that one failed."""
        attempts = self._known[node].attempts + 1 if node in self._known else 1
        wait = backoff.delay(attempts, _FIRST_WAIT, _LONGEST_WAIT)
        self._known[node] = _Failure(problem, attempts, now + wait)

    def waits(self, node: str | None, now: float) -> bool:
        """Return whether it is too early to try again."""
        return node in self._known and now < self._known[node].until

    def problems(self, wanted: Wanted) -> dict[str, Problem]:
        """Return what went wrong the last time, by volume."""
        return {
            volume_of(disk.id): self._known[disk.node].problem
            for disk in wanted.disks
            if disk.node in self._known
        }
