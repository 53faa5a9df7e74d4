"""The next step for a PersistentVolume: ready it, and reclaim it when its claim has gone."""

from __future__ import annotations

from dataclasses import dataclass

from livevirt.kube.controllers.storage import claim_plan
from livevirt.kube.controllers.storage.claim_plan import VOLUME_PROTECTION, Protect, Release
from livevirt.kube.objects.request import Object, status_of


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the decision depends on, read at one moment."""

    volume: Object
    claim: Object | None  # of the name the volume's claimRef gives
    directory: bool = False  # of a volume of ours: whether its directory is there
    used: bool = False  # something that runs names a claim that was torn away, or a new namesake


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """Make the place for the volume's disk."""


@dataclass(frozen=True, slots=True)
class RemoveDirectory:
    """Remove the volume's data for good."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object."""


@dataclass(frozen=True, slots=True)
class SetPhase:
    """Write the volume's phase."""

    phase: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Do nothing until something changes."""


Step = Protect | Release | MakeDirectory | RemoveDirectory | Delete | SetPhase | Rest


def plan(seen: Facts) -> Step:
    """Return the next step; the first rule that matches wins."""
    volume = seen.volume
    meta = volume["metadata"]
    finalizers = tuple(meta.get("finalizers") or ())
    going = "deletionTimestamp" in meta
    if not going and VOLUME_PROTECTION not in finalizers:
        return Protect((*finalizers, VOLUME_PROTECTION))
    reference = volume["spec"].get("claimRef") or {}
    phase = status_of(volume).get("phase")
    if not reference.get("uid"):
        if going:
            return _release(finalizers)
        return Rest() if phase == "Available" else SetPhase("Available")
    if seen.claim is not None and claim_plan.held_by(volume, seen.claim):
        return _serve(seen, phase)
    if seen.used:
        return Rest()
    if phase != "Released":
        return SetPhase("Released")
    return _reclaim(seen, finalizers, going)


def _serve(seen: Facts, phase: str | None) -> Step:
    if phase == "Bound":
        return Rest()
    if claim_plan.is_ours(seen.volume) and not seen.directory:
        return MakeDirectory()  # only now: an empty one in place of lost data would hide the loss
    return SetPhase("Bound")


def _reclaim(seen: Facts, finalizers: tuple[str, ...], going: bool) -> Step:
    policy = seen.volume["spec"].get("persistentVolumeReclaimPolicy")
    if policy == "Delete" and claim_plan.is_ours(seen.volume):
        if seen.directory:
            return RemoveDirectory()
        if not going:
            return Delete()
    return _release(finalizers) if going else Rest()


def _release(finalizers: tuple[str, ...]) -> Step:
    if VOLUME_PROTECTION in finalizers:
        return Release(tuple(each for each in finalizers if each != VOLUME_PROTECTION))
    return Rest()
