"""The status of a DataVolume, with CDI's phases, reasons and messages."""

from __future__ import annotations

from typing import Any

from livevirt.kube.objects import conditions, storage
from livevirt.kube.objects.conditions import FINAL, Condition
from livevirt.kube.objects.request import Object
from livevirt.vm.datavolumes import plan
from livevirt.vm.datavolumes.plan import DataVolumeSnapshot, capacity, source_of, taken, unserved

NOT_YET = "N/A"
DONE = "100.0%"


def status(seen: DataVolumeSnapshot) -> Object:
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
    for condition in (_bound(seen), _running(seen, phase), _ready(seen, phase)):
        listed = conditions.replaced(listed, condition, seen.now)
    found["conditions"] = listed
    return found


def phase_of(seen: DataVolumeSnapshot) -> str:
    """Return the phase of the DataVolume."""
    phase = str((seen.dv.get("status") or {}).get("phase") or "")
    source, claim, job = source_of(seen.dv), seen.claim, seen.job
    if phase in FINAL:
        return phase
    if unserved(seen.dv) or (job is not None and job.hopeless):
        return "Failed"
    if claim is None or not plan.owned(claim, seen.dv):
        return "Pending"
    if not source:  # another controller fills it
        return "Succeeded" if seen.volume else "PendingPopulation"
    if not seen.volume:
        waits = storage.waits(seen.storage_class)
        ours = seen.storage_class is not None and storage.is_ours(seen.storage_class)
        return storage.WAIT if waits and not ours else "Pending"
    if seen.disk and job is None:
        return "Succeeded"
    verb = "Clone" if source == "pvc" else "Import"
    # A try that failed is one of a transfer in progress: it is retried.
    started = job is not None and (job.running or bool(job.error))
    return f"{verb}InProgress" if started else f"{verb}Scheduled"


def _progress(seen: DataVolumeSnapshot, phase: str) -> str:
    if phase == "Succeeded":
        return DONE
    if seen.job is not None and seen.job.running:
        return f"{seen.job.progress:.2f}%"
    return NOT_YET


def _bound(seen: DataVolumeSnapshot) -> Condition:
    if seen.refused:
        return conditions.condition("Bound", "Unknown", "ErrExceededQuota", seen.refused)
    claim = seen.claim
    if claim is None:
        return conditions.condition("Bound", "Unknown", "NotFound", "No PVC found")
    name = claim["metadata"]["name"]
    if not plan.owned(claim, seen.dv):
        return conditions.condition("Bound", "False", "ErrResourceExists", taken(claim))
    match (claim.get("status") or {}).get("phase"):
        case "Bound":
            return conditions.condition(
                "Bound", "True", "Bound", f"PVC {name} Bound, {capacity(claim)}"
            )
        case "Lost":
            return conditions.condition("Bound", "False", "ClaimLost", "Claim Lost")
        case _:
            message = f"PVC {name} Pending"
            if seen.storage_class is None and (missing := storage.class_of(claim)):
                message += f": there is no StorageClass {missing}"
            return conditions.condition("Bound", "False", "Pending", message)


def _running(seen: DataVolumeSnapshot, phase: str) -> Condition:
    job = seen.job
    if why := unserved(seen.dv):
        return conditions.condition("Running", "False", "Error", why)
    if job is not None and job.error:
        return conditions.condition("Running", "False", job.reason, job.error)
    if job is not None and job.running:
        return conditions.condition(
            "Running", "True", "TransferRunning", "the disk is being written"
        )
    if phase == "Succeeded":
        return conditions.condition("Running", "False", "Completed", "the disk is complete")
    if phase == "Failed":
        return _as_before(seen)
    if seen.volume and seen.origin is not None and seen.origin.obstacle:
        return conditions.condition("Running", "False", seen.origin.reason, seen.origin.obstacle)
    return conditions.condition(
        "Running", "False", "Pending", "waits for its turn" if job is not None else ""
    )


def _as_before(seen: DataVolumeSnapshot) -> Condition:
    """Return the cause of a failure, which is known only when it happens and kept from then on."""
    found = conditions.find((seen.dv.get("status") or {}).get("conditions"), "Running")
    if found is None:
        return conditions.condition("Running", False, "Error")
    kept = {name: value for name, value in found.items() if name != "lastTransitionTime"}
    return {**kept, "status": "False"}


def _ready(seen: DataVolumeSnapshot, phase: str) -> Condition:
    if phase == "Succeeded":
        return conditions.condition("Ready", "True", "Completed")
    if seen.job is not None and seen.job.running:
        return conditions.condition("Ready", "False", "TransferRunning")
    if phase == "Failed" or (seen.job is not None and seen.job.error):
        return conditions.condition("Ready", "False", "Error")
    return conditions.condition("Ready", "False", "Pending")
