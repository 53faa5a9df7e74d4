"""The status of a VirtualMachine: a pure function of its snapshot."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Any

from livevirt.kube.objects import conditions, times
from livevirt.kube.objects.conditions import Condition, Failure
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.instancetypes.rules.machine import sized_by
from livevirt.vm.instancetypes.sizing import NEWER
from livevirt.vm.lifecycle.vm.plan import STARTING
from livevirt.vm.lifecycle.vm.snapshot import START, USABLE, VmSnapshot
from livevirt.vm.sizing import hot_change
from livevirt.vm.verdict import summary
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.volumes import volume_migration

GENERATION = "kubevirt.io/vm-generation"  # annotation of the instance: the VM's when it started
SIZED_BY = "livevirt.io/sized-by"  # and the revisions that it was sized by
FAILURE = "Failure"
#: Conditions of the VM that say something of its own; every other one mirrors the instance's.
OWN = ("Ready", FAILURE, summary.RESTART_REQUIRED, "ManualRecoveryRequired", NEWER)
#: Fields of the status this module writes, all others are left alone.
FIELDS = (
    "conditions", "created", "desiredGeneration", "machine", "observedGeneration",
    "pendingChanges", "pendingChangesOmitted", "printableStatus", "ready", "runStrategy",
    "startFailure", "stateChangeRequests", "volumeUpdateState",
)  # fmt: skip

_FIRST_WAIT, _LONGEST_WAIT = 10, 300  # seconds
_NOT_YET = ("", "Pending", "Scheduling", "Scheduled")
_COUNTING = (hot_change.PLUGGING, hot_change.UNPLUGGING)  # up to ten times a second
_IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff")


def changes(
    vm: Object,
    vmi: Object | None,
    seen: VmSnapshot,
    failure: Failure | None = None,
    judgement: Judgement | None = None,
    newer: Condition | None = None,
) -> dict[str, Any]:
    """Return the fields of the status that must change, None for those that must go.

    Without a judgement, pending edits stay in the status; so does the list of them where
    the edit cannot be judged. `failure` is what went wrong in this pass, if anything did.
    """
    wanted = status(vm, vmi, seen, failure, judgement, newer)
    written = status_of(vm)
    return {name: wanted.get(name) for name in FIELDS if wanted.get(name) != written.get(name)}


def status(
    vm: Object,
    vmi: Object | None,
    seen: VmSnapshot,
    failure: Failure | None = None,
    judgement: Judgement | None = None,
    newer: Condition | None = None,
) -> dict[str, Any]:
    """Return what the status should say."""
    ours = vmi if seen.guest is not None and seen.guest.owner == "this" else None
    generation = vm["metadata"].get("generation", 0)
    found: dict[str, Any] = {
        "conditions": _with_newer(_conditions(vm, ours, seen, judgement, failure), newer, seen.now),
        "created": True if ours is not None else None,
        "desiredGeneration": generation,
        "machine": _machine(vm, ours),
        "observedGeneration": _started_generation(ours, generation),
        "printableStatus": printable(vm, ours, seen),
        "ready": conditions.is_true(_of(ours), "Ready") or None,
        "runStrategy": _known_strategy(seen),
        "startFailure": _start_failure(vm, seen),
        "stateChangeRequests": _requests(vm, seen),
        "volumeUpdateState": volume_migration.state(
            volume_migration.remembered(vm, ours, judgement)
        ),
        **_pending(vm, judgement),
    }
    return {name: value for name, value in found.items() if value is not None}


def printable(vm: Object, vmi: Object | None, seen: VmSnapshot) -> str:
    """Return the status that `kubectl get` prints; the first rule that matches wins."""
    guest = seen.guest if vmi is not None else None
    listed, phase = _of(vmi), guest.phase if guest is not None else ""
    volumes = [seen.volumes.get(name, "") for name in seen.vm.volumes]
    present = [phase for phase in volumes if phase]
    unsynced = conditions.find(listed, "Synchronized") or {}
    why = unsynced.get("reason", "") if unsynced.get("status") == "False" else ""
    scheduled = conditions.find(listed, "PodScheduled") or {}
    asked = next(iter(seen.requests), None)
    starts = seen.vm.strategy in STARTING or (asked is not None and asked.action == START)
    if seen.vm.deleting:
        return "Terminating"
    if guest is not None and guest.deleting and not guest.final:
        return "Stopping"
    if guest is not None and _migrating(vmi):
        return "Migrating"
    if phase == "Running":
        return "Paused" if conditions.is_true(listed, "Paused") else "Running"
    if why == "FailedPvcNotFound":
        return "ErrorPvcNotFound"
    if "Failed" in present:
        return "DataVolumeError"
    if (scheduled.get("status"), scheduled.get("reason")) == ("False", "Unschedulable"):
        return "ErrorUnschedulable"
    if conditions.is_true(listed, "Provisioning") or any(p not in USABLE for p in present):
        return "Provisioning"
    if starts and any(p != "Succeeded" for p in present) and phase in _NOT_YET:
        return "WaitingForVolumeBinding"
    if why in _IMAGE_REASONS:
        return str(why)
    if guest is not None and phase in _NOT_YET:
        return "Starting"
    if seen.vm.failure is not None and seen.vm.strategy in STARTING:
        return "CrashLoopBackOff"
    if guest is None or guest.final:
        return "Stopped"
    return "Unknown"


def next_try(failures: int, uid: str, now: datetime) -> datetime:
    """Return when to start again after so many failed starts; the uid spreads VMs apart."""
    wait = min(_FIRST_WAIT * failures**2, _LONGEST_WAIT)
    spread = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:4]) / 2**32
    return now + timedelta(seconds=min(wait + wait / 2 * spread, _LONGEST_WAIT))


def _pending(vm: Object, judgement: Judgement | None) -> dict[str, Any]:
    if judgement is None or judgement.unknown:
        written = status_of(vm)
        return {name: written.get(name) for name in ("pendingChanges", "pendingChangesOmitted")}
    found = summary.pending(judgement)
    return {"pendingChanges": found.items or None, "pendingChangesOmitted": found.omitted or None}


def _conditions(
    vm: Object,
    vmi: Object | None,
    seen: VmSnapshot,
    judgement: Judgement | None,
    failure: Failure | None,
) -> list[Condition] | None:
    listed: list[Condition] = status_of(vm).get("conditions") or []
    listed = _put(listed, _ready(vmi), seen.now)
    shown = hot_change.reported(vmi) if vmi is not None else []
    mirrored = [c for c in shown if c["type"] not in OWN]
    for condition in mirrored:
        listed = _put(listed, condition, seen.now)
    kept = {*OWN, *(c["type"] for c in mirrored)}
    for condition in listed:
        if condition["type"] not in kept:
            listed = conditions.without_condition(listed, condition["type"])
    if judgement is not None:
        waiting = summary.condition(judgement)
        if waiting is None:
            listed = conditions.without_condition(listed, summary.RESTART_REQUIRED)
        else:  # its message changes with what waits
            listed = conditions.with_condition(listed, waiting, seen.now)
    if failure is not None:
        problem = conditions.condition(FAILURE, "True", failure.reason, failure.message)
        return conditions.with_condition(listed, problem, seen.now)
    return conditions.without_condition(listed, FAILURE) or None


def _with_newer(
    listed: list[Condition] | None, newer: Condition | None, now: datetime
) -> list[Condition] | None:
    """Return the conditions with the one about a newer instance type or preference."""
    if newer is not None:
        return conditions.with_condition(listed or [], newer, now)
    return conditions.without_condition(listed or [], NEWER) or None


def _put(listed: list[Condition], condition: Condition, now: datetime) -> list[Condition]:
    """Return the list with a condition, unless only its times differ.

    The message of a guest that is changing its size counts its progress: only the instance has it.
    """
    message = () if condition.get("reason") in _COUNTING else ("message",)
    old, parts = conditions.find(listed, condition["type"]), ("status", "reason", *message)
    if old is not None and all(old.get(part) == condition.get(part) for part in parts):
        return listed
    return conditions.with_condition(listed, condition, now)


def _ready(vmi: Object | None) -> Condition:
    if vmi is None:
        return _not_ready("VMINotExists", "VMI does not exist")
    found = conditions.find(_of(vmi), "Ready")
    return found or _not_ready("VMIConditionMissing", "VMI is missing the Ready condition")


def _not_ready(reason: str, message: str) -> Condition:
    return conditions.condition("Ready", "False", reason, message)


def _start_failure(vm: Object, seen: VmSnapshot) -> Object | None:
    known: Object | None = status_of(vm).get("startFailure")
    guest = seen.guest
    if seen.vm.strategy not in STARTING or (guest is not None and guest.ran):
        return None
    failed = guest is not None and guest.final
    if not failed or guest is None or (known and known.get("lastFailedVMIUID") == guest.uid):
        return known
    count = (known or {}).get("consecutiveFailCount", 0) + 1
    return {
        "consecutiveFailCount": count,
        "lastFailedVMIUID": guest.uid,
        "retryAfterTimestamp": times.format_time(next_try(count, guest.uid, seen.now)),
    }


def _known_strategy(seen: VmSnapshot) -> str | None:
    """Return the strategy that was acted on: RerunOnFailure is, once it has started the guest."""
    strategy = seen.vm.strategy
    if strategy == "RerunOnFailure" and seen.guest is None:
        return seen.vm.known_strategy or None
    return strategy


def _requests(vm: Object, seen: VmSnapshot) -> list[Object] | None:
    """Return the requests that are still to be done.

    A failed rerun asks for a start itself. Halting a VM cancels the start of a restart; only
    a paused start is asked of a halted one.
    """
    written: list[Object] = status_of(vm).get("stateChangeRequests") or []
    left = written[len(written) - len(seen.requests) :]
    if seen.vm.strategy == "Halted":
        asked = zip(left, seen.requests, strict=True)
        left = [each for each, request in asked if request.action != START or request.paused]
    guest = seen.guest
    again = guest is not None and guest.phase == "Failed" and not guest.deleting
    if again and seen.vm.strategy == "RerunOnFailure" and not left:
        return [{"action": START}]
    return left or None


def marks(vm: Object) -> dict[str, str]:
    """Return the annotations of an instance that has all of a VM."""
    used = sized_by(vm)
    mark = {GENERATION: str(vm["metadata"]["generation"])}
    return {**mark, SIZED_BY: used} if used else mark


def has_all(vmi: Object, vm: Object) -> bool:
    """Return whether an instance has all of a VM, by its annotations."""
    annotations = vmi["metadata"].get("annotations") or {}
    return all(annotations.get(name) == value for name, value in marks(vm).items())


def noted(vmi: Object | None) -> str:
    """Return the newest generation of the VM that is complete in the instance."""
    annotations = (vmi or {"metadata": {}})["metadata"].get("annotations") or {}
    return str(annotations.get(GENERATION, ""))


def _machine(vm: Object, vmi: Object | None) -> Object | None:
    """Return the machine the guest has, or had when it last ran: the next one gets it too."""
    reported: Object | None = status_of(vmi).get("machine")
    return reported or status_of(vm).get("machine")


def _started_generation(vmi: Object | None, generation: int) -> int:
    started = noted(vmi)
    return int(started) if started.isdecimal() and len(started) < 19 else generation


def _migrating(vmi: Object | None) -> bool:
    state = status_of(vmi).get("migrationState") or {}
    return bool(state.get("startTimestamp")) and not state.get("endTimestamp")


def _of(vmi: Object | None) -> list[Condition]:
    return status_of(vmi).get("conditions") or []
