"""Volumes whose content is copied to another claim while the guest runs.

An instance lists them in `status.migratedVolumes`, its VM in `status.volumeUpdateState`. Each goes
through three phases: the node copies (`Copying`), finds both sides the same and keeps them so
(`Copied`), and moves the guest over once the VM's controller lets it (`Switching`). Until then the
source is what a next guest starts from, then the destination; the VM's status is written first, so
whenever a guest dies its VM knows which claim has all that was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.spec.disks import hotpluggable, target
from livevirt.vm.verdict.comparison import Comparison, VolumeEdit
from livevirt.vm.verdict.judgement import Judgement, Reason, Ruling, Verdict
from livevirt.vm.volumes.volume_lists import claim_of, read_only

MIGRATION = "Migration"  # of `updateVolumesStrategy`; without it the strategy is Replacement
STRATEGIES = ("Replacement", MIGRATION)
COPYING, COPIED, SWITCHING = "Copying", "Copied", "Switching"
VOLUMES_CHANGE, CANCELLED = "VolumesChange", "VolumesChangeCancellation"
#: Why a volume is Pending whose claim is not there, or has nothing in it yet; the first is what an
#: instance reports that waits for a claim before it starts.
UNFILLED = ("FailedPvcNotFound", "PVCNotReady", "DataVolumeNotReady", "DataVolumeFailed")


@dataclass(frozen=True, slots=True)
class Move:
    """A volume that is copied from one claim to another."""

    volume: str
    source: str
    destination: str
    phase: str = COPYING

    @property
    def description(self) -> str:
        """Return what is copied, for messages."""
        return f"volume {self.volume} from PVC {self.source} to PVC {self.destination}"


def moves(status: Object | None) -> dict[str, Move]:
    """Read an instance's status, by volume."""
    return {each.volume: each for each in map(_read, (status or {}).get("migratedVolumes") or ())}


def claims(vmi: Object) -> list[str]:
    """Return the claims that an instance copies from or to."""
    found = moves(vmi.get("status")).values()
    return [claim for move in found for claim in (move.source, move.destination)]


# ---------------------------------------------------------------- the verdict


def ruling(comparison: Comparison, edit: VolumeEdit) -> Ruling | None:
    """Rule on a volume that gets another claim, None if it is not about copying."""
    move = moves((comparison.inputs.vmi or {}).get("status")).get(edit.name)
    if edit.old_volume == edit.volume:
        return None
    if move is not None and move.phase == SWITCHING:
        message = f"the guest is about to leave PVC {move.source}; it is looked at again after that"
        return Ruling(Verdict.LIVE, Reason.VOLUME_MIGRATION, message, waits=True)
    if move is not None and claim_of(edit.volume or {}) == move.destination:
        message = f"it is still copied to PVC {move.destination}, and looked at again after that"
        return Ruling(Verdict.LIVE, Reason.VOLUME_MIGRATION, message, waits=True)
    if move is not None and claim_of(edit.volume or {}) == move.source:
        message = f"the copy to PVC {move.destination} is cancelled"
        return Ruling(Verdict.LIVE, Reason.VOLUME_MIGRATION, message)
    if comparison.inputs.volumes_strategy != MIGRATION or not comparison.inputs.config.live_update:
        return None
    if move is None and _is_nothing(comparison, edit):
        return None  # there is nothing to copy: it is replaced, so that a slip can be put right
    return _copied(comparison, edit)


def _copied(comparison: Comparison, edit: VolumeEdit) -> Ruling | None:
    old, new = claim_of(edit.old_volume or {}), claim_of(edit.volume or {})
    if not old or not new or old == new or edit.is_drive:
        return None  # it is attached, detached or a CD-ROM image
    objection = _objection(edit)
    if objection:
        message = f"{objection}, so it is not copied and takes PVC {new} as it is at a restart"
        return Ruling(Verdict.RESTART, Reason.NOT_COPIED, message)
    if comparison.inputs.migrating:
        message = f"the guest is being migrated; it is copied to PVC {new} after that"
        return Ruling(Verdict.LIVE, Reason.VOLUME_MIGRATION, message, waits=True)
    if not _attached(comparison, edit):
        message = f"it is copied to PVC {new} once the guest runs and has PVC {old}"
        return Ruling(Verdict.LIVE, Reason.VOLUME_MIGRATION, message, waits=True)
    message = f"it is copied to PVC {new} while the guest runs, which then goes on with that"
    return Ruling(Verdict.LIVE, Reason.VOLUME_MIGRATION, message)


def _attached(comparison: Comparison, edit: VolumeEdit) -> bool:
    """Return whether the guest has a volume by now."""
    status = status_of(comparison.inputs.vmi)
    listed = {each["name"]: each for each in status.get("volumeStatus") or ()}
    there = not hotpluggable(edit.old_volume) or listed.get(edit.name, {}).get("phase") == "Ready"
    return status.get("phase") == "Running" and there


def _is_nothing(comparison: Comparison, edit: VolumeEdit) -> bool:
    """Return whether the claim of before is known to hold nothing that the guest could have had."""
    vmi, claim = comparison.inputs.vmi or {}, claim_of(edit.old_volume or {})
    status = status_of(vmi)
    for each in status.get("volumeStatus") or ():
        if each["name"] == edit.name and each.get("phase") == "Pending":
            return each.get("reason") in UNFILLED
    return bool(claim) and status.get("missingClaim") == claim


def _objection(edit: VolumeEdit) -> str:
    disk = edit.disk or {}
    if edit.old_disk != edit.disk:
        return f"the settings of disk {edit.name} change too"
    if hotpluggable(edit.old_volume) != hotpluggable(edit.volume):
        return f"hotpluggable of volume {edit.name} changes too"
    if target(disk) == "lun":
        return f"{edit.name} is a lun"
    if disk.get("shareable"):
        return f"disk {edit.name} is shareable"
    reads = any(map(read_only, filter(None, (edit.old_volume, edit.volume))))
    if reads or (disk.get("disk") or {}).get("readonly"):
        return f"volume {edit.name} is read-only"
    return ""


def follows(judgement: Judgement) -> set[str]:
    """Return the volumes that are to be copied now, or no longer."""
    return {
        change.volume
        for change in judgement.changes
        if change.reason is Reason.VOLUME_MIGRATION and not change.waits
    }


# ---------------------------------------------------------------- what is written to the instance


def moved(
    judgement: Judgement, vmi: Object, volumes: list[Object], infos: Mapping[str, Object]
) -> list[Object]:
    """Return `migratedVolumes` of an instance that is about to get these volumes.

    `infos` is what is known of the new claims, by name.
    """
    listed = _listed(vmi.get("status"))
    known = {each["volumeName"]: each for each in listed}
    has = _claims(vmi["spec"].get("volumes"))
    copied, found = follows(judgement), []
    for volume in volumes:
        name, claim = volume["name"], claim_of(volume)
        entry = known.get(name)
        if claim == has.get(name):
            found += [entry] if entry is not None else []
            continue
        source = entry["sourcePVCInfo"] if entry is not None else _info(vmi, name, has.get(name))
        if name in copied and claim != source["claimName"]:
            found.append(_entry(name, source, {"claimName": claim, **infos.get(claim, {})}))
    return found


def switching(vm: Object, vmi: Object) -> list[Object] | None:
    """Return `migratedVolumes` in which what is copied may switch, None if nothing new may.

    A volume that its VM wants elsewhere by now may not.
    """
    wanted = _claims((vm["spec"]["template"].get("spec") or {}).get("volumes"))
    listed = _listed(vmi.get("status"))
    found = [
        {**each, "phase": SWITCHING}
        if each.get("phase") == COPIED and wanted.get(each["volumeName"]) == _read(each).destination
        else each
        for each in listed
    ]
    return found if found != listed else None


def copying(vmi: Object) -> list[Move]:
    """Return what is being copied, or about to be, and would be interrupted by a migration.

    That is nothing if nothing can be copied for now, as the node's condition reports.
    """
    status = status_of(vmi)
    reported = conditions.find(status.get("conditions"), VOLUMES_CHANGE) or {}
    stuck = reported.get("status") == "False" and reported.get("reason") != CANCELLED
    return [] if stuck else list(moves(status).values())


def condition(
    listed: list[Move], reason: str = COPYING, how: str = "to be copied", status: str = "True"
) -> Condition:
    """Return the condition of an instance that copies these volumes, or is to."""
    message = f"{how}: {', '.join(move.description for move in listed)}"
    return conditions.condition(VOLUMES_CHANGE, status, reason, message)


def cancelled() -> Condition:
    """Return the condition of an instance whose VM does not want its volumes copied any more."""
    message = "no longer copied: the VM asks for the claims that the guest has, or for others"
    return conditions.condition(VOLUMES_CHANGE, False, CANCELLED, message)


# ---------------------------------------------------------------- what the VM remembers


def remembered(vm: Object, vmi: Object | None, judgement: Judgement | None) -> list[Object]:
    """Return the copies that a VM must know of: those under way, and those still to begin.

    Some are to begin again, of a guest that ended before its copy did: its VM names where the data
    is, whatever claim is wanted by now.
    """
    found = _listed((vmi or {}).get("status"))
    if vm["spec"].get("updateVolumesStrategy") != MIGRATION:
        return found
    there = {each["volumeName"] for each in found}
    wanted = _claims((vm["spec"]["template"].get("spec") or {}).get("volumes"))
    has = _claims(((vmi or {}).get("spec") or {}).get("volumes"))
    changes = judgement.changes if judgement is not None else ()
    staged = {change.volume for change in changes if change.verdict is Verdict.RESTART}
    holds = {each["volumeName"]: _holder(each) for each in written(vm)}
    holds |= {
        name: _info(vmi, name, has[name]) for name in _waiting(changes) if vmi and name in has
    }
    for name, info in holds.items():
        held, goal = info["claimName"], wanted.get(name, "")
        left = goal not in ("", held) and name not in staged
        if left and name not in there and (vmi is None or has.get(name) == held):
            found.append(_entry(name, info, {"claimName": goal}))
    return found


def _waiting(changes: Iterable[Ruling]) -> list[str]:
    """Return the volumes whose copy is to begin as soon as it can."""
    reason = Reason.VOLUME_MIGRATION
    return [each.volume for each in changes if each.reason is reason and each.waits]


def _holder(entry: Object) -> Object:
    """Return what is known of the claim that has all that was written."""
    side = "destination" if _read(entry).phase == SWITCHING else "source"
    found: Object = entry[f"{side}PVCInfo"]
    return found


def written(vm: Object) -> list[Object]:
    """Return the copies in a VM's status."""
    state = status_of(vm).get("volumeUpdateState") or {}
    return _listed(state.get("volumeMigrationState"))


def state(entries: list[Object]) -> Object | None:
    """Return `volumeUpdateState` with these copies."""
    return {"volumeMigrationState": {"migratedVolumes": entries}} if entries else None


def to_start_from(vm: Object, volumes: list[Object]) -> list[Object]:
    """Return a VM's volumes as its next guest must have them: each on the claim with its data.

    A claim to which a copy was not finished has only some of it.
    """
    if vm["spec"].get("updateVolumesStrategy") != MIGRATION:
        return volumes
    holds = {each["volumeName"]: _holder(each)["claimName"] for each in written(vm)}
    return [
        _on(volume, holds[volume["name"]])
        if claim_of(volume) not in ("", holds.get(volume["name"], claim_of(volume)))
        else volume
        for volume in volumes
    ]


def _on(volume: Object, claim: str) -> Object:
    """Return a volume of a claim as one of another claim; the source may be of another kind."""
    given = volume.get("persistentVolumeClaim") or volume.get("dataVolume") or {}
    kept = {key: given[key] for key in ("hotpluggable",) if key in given}
    return {"name": volume["name"], "persistentVolumeClaim": {"claimName": claim, **kept}}


def _claims(volumes: list[Object] | None) -> dict[str, str]:
    return {volume["name"]: claim_of(volume) for volume in volumes or ()}


def _entry(volume: str, source: Object, destination: Object) -> Object:
    return {
        "volumeName": volume,
        "sourcePVCInfo": source,
        "destinationPVCInfo": destination,
        "phase": COPYING,
    }


def _info(vmi: Object | None, name: str, claim: str | None) -> Object:
    """Return what is known of the claim that the guest has."""
    for each in status_of(vmi).get("volumeStatus") or ():
        info: Object = each.get("persistentVolumeClaimInfo") or {}
        if each["name"] == name and info.get("claimName") == claim:
            return info
    return {"claimName": claim}


def _listed(status: Object | None) -> list[Object]:
    return list((status or {}).get("migratedVolumes") or ())


def _read(entry: Object) -> Move:
    return Move(
        entry["volumeName"],
        (entry.get("sourcePVCInfo") or {}).get("claimName", ""),
        (entry.get("destinationPVCInfo") or {}).get("claimName", ""),
        entry.get("phase") or COPYING,
    )
