"""What a DataVolume's status says, in CDI's words."""

from __future__ import annotations

from typing import Any

from livevirt.kube.objects import conditions, storage
from livevirt.kube.objects.phases import FINAL
from livevirt.kube.objects.request import Object
from livevirt.vm.datavolumes import claim as datavolume_claim
from livevirt.vm.datavolumes.plan import Seen, capacity, source_of, taken, unserved

NOT_YET = "N/A"
DONE = "100.0%"


def status(seen: Seen) -> Object:
    """Return the status that is true now; equal to the present one if nothing changed."""
    before = seen.dv.get("status") or {}
    phase = phase_of(seen)
    found: dict[str, Any] = {**before, "phase": phase, "progress": _progress(seen, phase)}
    if seen.claim is not None and phase != "Failed":
        found["claimName"] = seen.claim["metadata"]["name"]
    if seen.job is not None and seen.job.failures:
        found["restartCount"] = max(seen.job.failures, before.get("restartCount", 0))
    else:
        found.setdefault("restartCount", 0)
    listed = before.get("conditions")
    for type_, (value, reason, message) in _conditions(seen, phase).items():
        condition = {"type": type_, "status": value, "reason": reason, "message": message}
        listed = _with(listed, condition, seen)
    found["conditions"] = listed
    return found


def phase_of(seen: Seen) -> str:
    """Return the phase of the DataVolume."""
    phase = str((seen.dv.get("status") or {}).get("phase") or "")
    source, claim, job = source_of(seen.dv), seen.claim, seen.job
    if phase in FINAL:
        return phase
    if unserved(seen.dv) or (job is not None and job.hopeless):
        return "Failed"
    if claim is None or not datavolume_claim.owned(claim, seen.dv):
        return "Pending"
    if not source:  # somebody else fills it
        return "Succeeded" if seen.volume else "PendingPopulation"
    if not seen.volume:
        waits = storage.waits(seen.storage_class)
        ours = seen.storage_class is not None and storage.is_ours(seen.storage_class)
        return storage.WAIT if waits and not ours else "Pending"
    if seen.disk and job is None:
        return "Succeeded"
    verb = "Clone" if source == "pvc" else "Import"
    # A try that failed is one of a transfer in progress: it goes on by itself.
    started = job is not None and (job.running or bool(job.error))
    return f"{verb}InProgress" if started else f"{verb}Scheduled"


def _progress(seen: Seen, phase: str) -> str:
    if phase == "Succeeded":
        return DONE
    if seen.job is not None and seen.job.running:
        return f"{seen.job.progress:.2f}%"
    return NOT_YET


def _conditions(seen: Seen, phase: str) -> dict[str, tuple[str, str, str]]:
    return {"Bound": _bound(seen), "Running": _running(seen, phase), "Ready": _ready(seen, phase)}


def _bound(seen: Seen) -> tuple[str, str, str]:
    if seen.refused:
        return "Unknown", "ErrExceededQuota", seen.refused
    claim = seen.claim
    if claim is None:
        return "Unknown", "NotFound", "No PVC found"
    name = claim["metadata"]["name"]
    if not datavolume_claim.owned(claim, seen.dv):
        return "False", "ErrResourceExists", taken(claim)
    match (claim.get("status") or {}).get("phase"):
        case "Bound":
            return "True", "Bound", f"PVC {name} Bound, {capacity(claim)}"
        case "Lost":
            return "False", "ClaimLost", "Claim Lost"
        case _:
            return "False", "Pending", f"PVC {name} Pending"


def _running(seen: Seen, phase: str) -> tuple[str, str, str]:
    job = seen.job
    if why := unserved(seen.dv):
        return "False", "Error", why
    if job is not None and job.error:
        return "False", job.reason, job.error
    if job is not None and job.running:
        return "True", "TransferRunning", "the disk is being written"
    if phase == "Succeeded":
        return "False", "Completed", "the disk is complete"
    if phase == "Failed":
        return _said_before(seen)
    if seen.volume and seen.origin is not None and seen.origin.obstacle:
        return "False", seen.origin.reason, seen.origin.obstacle
    return "False", "Pending", "waits for its turn" if job is not None else ""


def _said_before(seen: Seen) -> tuple[str, str, str]:
    """The cause of a failure is known only when it happens, and kept from then on."""
    found = conditions.find((seen.dv.get("status") or {}).get("conditions"), "Running") or {}
    return "False", str(found.get("reason") or "Error"), str(found.get("message") or "")


def _ready(seen: Seen, phase: str) -> tuple[str, str, str]:
    if phase == "Succeeded":
        return "True", "Completed", ""
    if seen.job is not None and seen.job.running:
        return "False", "TransferRunning", ""
    if phase == "Failed" or (seen.job is not None and seen.job.error):
        return "False", "Error", ""
    return "False", "Pending", ""


def _with(listed: list[Object] | None, condition: Object, seen: Seen) -> list[Object]:
    """Set a condition; where nothing but the time differs, the old one stays."""
    old = conditions.find(listed, condition["type"]) or {}
    if all(old.get(name) == value for name, value in condition.items()):
        return listed or []
    fresh = conditions.with_condition(listed, condition, seen.now)
    return fresh
