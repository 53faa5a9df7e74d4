"""Events that the node records for the owner of a VMI; the reasons are KubeVirt's own."""

from __future__ import annotations

from livevirt.kube.control.events import Recorder
from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.request import Object, status_of
from livevirt.node import attachments, probes
from livevirt.node.exit_record import ExitRecord
from livevirt.node.pod_status import RESIZE_IN_PROGRESS, RESIZE_PENDING
from livevirt.vm.sizing import guest_size, hot_change
from livevirt.vm.volumes import volume_migration

COMPONENT = "virt-handler"
VOLUME_COPIED = "VolumeMigrated"
STARTED, STOPPED, SHUTTING_DOWN = "Started", "Stopped", "ShuttingDown"
UNHEALTHY = "Unhealthy"
MAY_NOT_SHRINK = "MemoryMayNotShrink"
_SIZES = {hot_change.CPU: ("cpu", "VCPUs"), hot_change.MEMORY_TYPE: ("memory", "Memory")}
#: Of volumes that are where they should be or on their way there; such messages name the volume.
_NAMING_THE_VOLUME = (attachments.READY, hot_change.ATTACHING, hot_change.DETACHING)
_RESIZES = {
    RESIZE_PENDING: {"Deferred": "ResizeDeferred", "Infeasible": "ResizeInfeasible"},
    RESIZE_IN_PROGRESS: {"Error": "ResizeError"},
}


def unhealthy(recorder: Recorder, vmi: Object, probe: str, why: str) -> None:
    """Record that a probe has failed as often as its threshold allows."""
    kind = {probes.READINESS: "Readiness", probes.LIVENESS: "Liveness"}[probe]
    recorder.event(vmi, "Warning", UNHEALTHY, f"{kind} probe failed: {why}")


def started(recorder: Recorder, vmi: Object) -> None:
    recorder.event(vmi, "Normal", STARTED, "VirtualMachineInstance started.")


def size_changed(recorder: Recorder, vmi: Object, changed: Object) -> None:
    """Record what a patch of the status changes about a change of size, and when it is over."""
    status = status_of(vmi)
    before: list[Condition] | None = status.get("conditions")
    listed: list[Condition] | None = changed.get("conditions", before)
    reached = changed.get(hot_change.OBSERVED) or {}
    for type_, (key, what) in _SIZES.items():
        old, new = conditions.find(before, type_), conditions.find(listed, type_)
        if key in reached or (old is not None and new is None):
            message = hot_change.reached(_after(vmi, changed), type_)
            recorder.event(vmi, "Normal", f"{what}Changed", message)
        elif new is not None and (old or {}).get("reason") != new.get("reason"):
            _record(recorder, vmi, new, is_first=old is None)
    if (changed.get("memory") or {}).get("shrinkable") is False:
        message = f"New memory was brought online as it came. {guest_size.MAY_NOT_SHRINK}"
        recorder.event(vmi, "Warning", MAY_NOT_SHRINK, message)


def _after(vmi: Object, changed: Object) -> Object:
    """Return an instance with what a patch of its status changes about its size."""
    status = status_of(vmi)
    fields = ("currentCPUTopology", "memory")
    sizes = {name: {**(status.get(name) or {}), **(changed.get(name) or {})} for name in fields}
    listed = changed.get("conditions", status.get("conditions"))
    return {**vmi, "status": {**status, **sizes, "conditions": listed}}


def _record(recorder: Recorder, vmi: Object, condition: Condition, *, is_first: bool) -> None:
    reason, held = condition["reason"], hot_change.obstacle(vmi)
    if reason == hot_change.WAITING or (is_first and reason in hot_change.BEGUN):
        return  # the VM's event about the edit covers it
    if held is not None and reason == held.reason:
        return  # the VMI controller has recorded it
    good = reason in (hot_change.PLUGGING, hot_change.UNPLUGGING)
    message = f"{condition['type']}: {condition.get('message', '')}"
    recorder.event(vmi, "Normal" if good else "Warning", reason, message)


def moved(recorder: Recorder, vmi: Object, changes: Object, node: str) -> None:
    """Record what is new about a migration."""
    if changes.get("completed"):
        message = f"The VirtualMachineInstance migrated to node {node}."
        recorder.event(vmi, "Normal", "Migrated", message)
    elif changes.get("failed"):
        message = f"The migration failed, the guest stays: {changes['failureReason']}"
        recorder.event(vmi, "Warning", "MigrationFailed", message)
    elif "startTimestamp" in changes:
        message = "The VirtualMachineInstance is being sent to another node."
        recorder.event(vmi, "Normal", "Migrating", message)


def volumes_changed(recorder: Recorder, vmi: Object, listed: list[Object]) -> None:
    """Record which volumes were attached, detached or got stuck."""
    before = _plugged(status_of(vmi).get("volumeStatus"))
    after = _plugged(listed)
    for name, entry in after.items():
        reason = entry.get("reason", "")
        if not reason or reason == before.get(name, {}).get("reason"):
            continue
        message = entry.get("message", "")
        if reason in _NAMING_THE_VOLUME:
            recorder.event(vmi, "Normal", reason, message)
        else:
            recorder.event(vmi, "Warning", reason, f"Volume {name}: {message}")
    for name in before:
        if name not in after:
            message = f"Volume {name} has been unmounted from virt-launcher pod"
            recorder.event(vmi, "Normal", attachments.UNMOUNTED, message)


def volumes_copied(recorder: Recorder, vmi: Object, left: list[Object]) -> None:
    """Record which volumes are on another claim now."""
    names = {each["volumeName"] for each in left}
    for name, move in volume_migration.moves(vmi.get("status")).items():
        if name not in names:
            message = f"Volume {name} was copied and is on PVC {move.destination} now"
            recorder.event(vmi, "Normal", VOLUME_COPIED, message)


def _plugged(listed: list[Object] | None) -> dict[str, Object]:
    return {each["name"]: each for each in listed or () if "hotplugVolume" in each}


def resized(recorder: Recorder, pod: Object, status: Object) -> None:
    """Record the outcome of a resize that the pod asked for."""
    old = status_of(pod)
    for type_, reasons in _RESIZES.items():
        before = conditions.find(old.get("conditions"), type_) or {}
        now = conditions.find(status.get("conditions"), type_) or {}
        reason = now.get("reason", "")
        if now and reason != before.get("reason"):
            recorder.event(pod, "Warning", reasons.get(reason, type_), now.get("message", ""))
    was = _in_force(old)
    if was is not None and _in_force(status) != was:
        recorder.event(pod, "Normal", "ResizeCompleted", "Pod resize completed: in force now")


def shutting_down(recorder: Recorder, vmi: Object) -> None:
    message = "Signaled Graceful Shutdown"
    recorder.event(vmi, "Normal", SHUTTING_DOWN, message)


def ended(recorder: Recorder, vmi: Object, ending: ExitRecord) -> None:
    if ending.phase == "Failed":
        message = f"The VirtualMachineInstance crashed: {ending.message}"
        recorder.event(vmi, "Warning", STOPPED, message)
    else:
        message = f"The VirtualMachineInstance was shut down: {ending.message}"
        recorder.event(vmi, "Normal", STOPPED, message)


def _in_force(status: Object) -> Object | None:
    """Return the resources of the first container that a status calls in force."""
    for container in status.get("containerStatuses") or ():
        found: Object | None = container.get("resources")
        return found
    return None
