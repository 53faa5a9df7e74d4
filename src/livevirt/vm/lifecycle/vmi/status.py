"""The VMI controller's part of an instance's status, and the events about it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from livevirt.kube.control.events import Recorder
from livevirt.kube.objects import conditions, times
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.lifecycle.vmi.plan import phase
from livevirt.vm.lifecycle.vmi.view import InstanceSnapshot, Problem
from livevirt.vm.migration.migratability import NODE_NAME
from livevirt.vm.sizing import hot_change
from livevirt.vm.sizing.hot_change import Obstacle

SYNCHRONIZED = "Synchronized"


def changes(
    vmi: Object, pod: Object | None, seen: InstanceSnapshot, now: datetime
) -> dict[str, Any]:
    """Return the fields of the status that must change, None for those that must go."""
    status, problem = status_of(vmi), seen.failure or _problem(seen)
    wanted: dict[str, Any] = {
        "conditions": _conditions(vmi, pod, seen, problem, now),
        hot_change.POD_RESIZE: hot_change.pod_resize(vmi, seen.obstacle),
        "missingClaim": problem.claim or None if problem is not None else None,
    }
    next_phase = phase(seen)
    if next_phase != status.get("phase"):
        wanted["phase"] = next_phase
        wanted["phaseTransitionTimestamps"] = [
            *(status.get("phaseTransitionTimestamps") or ()),
            {"phase": next_phase, "phaseTransitionTimestamp": times.format_time(now)},
        ]
    if pod is not None and seen.pod is not None and seen.pod.node:
        wanted |= _placed(status, pod, seen.pod.node)
    changed = {name: value for name, value in wanted.items() if value != status.get(name)}
    active = _active_pods(status.get("activePods") or {}, seen)
    return {**changed, "activePods": active} if active else changed


def label_changes(vmi: Object, seen: InstanceSnapshot) -> dict[str, str]:
    """Return the labels that must change: the node's name, for who looks for its guests."""
    labels = vmi["metadata"].get("labels") or {}
    node = seen.pod.node if seen.pod is not None else ""
    return {NODE_NAME: node} if node and labels.get(NODE_NAME) != node else {}


def _active_pods(listed: Object, seen: InstanceSnapshot) -> dict[str, str | None]:
    """Return what must change in the list of the pods that are there and the nodes they are on."""
    there = {pod.uid: pod.node for pod in seen.pods if pod.node and not pod.ended}
    gone = dict.fromkeys(listed.keys() - there.keys())
    return gone | {uid: node for uid, node in there.items() if listed.get(uid) != node}


def _placed(status: Object, pod: Object, node: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "launcherContainerImageVersion": launcher.image_of(pod),
        "runtimeUser": launcher.RUN_AS,
    }
    if not status.get("nodeName"):  # after a migration the node sets it
        found["nodeName"] = node
    if qos := status_of(pod).get("qosClass"):
        found["qosClass"] = qos
    return found


def _conditions(
    vmi: Object, pod: Object | None, seen: InstanceSnapshot, problem: Problem | None, now: datetime
) -> list[Condition] | None:
    listed: list[Condition] = status_of(vmi).get("conditions") or []
    listed = conditions.replaced(listed, _ready(pod, seen), now)
    if seen.pod is not None and (waits := seen.pod.unschedulable) is not None:
        unschedulable = _false("PodScheduled", waits.reason, waits.message)
        listed = conditions.replaced(listed, unschedulable, now)
    else:
        listed = conditions.without_condition(listed, "PodScheduled")
    if problem is not None:
        unsynced = _false(SYNCHRONIZED, problem.reason, problem.message)
        return conditions.replaced(listed, unsynced, now)
    return conditions.without_condition(listed, SYNCHRONIZED)


def _problem(seen: InstanceSnapshot) -> Problem | None:
    if seen.vmi.final:
        return None
    return seen.pod.problem if seen.pod is not None else seen.missing


def _ready(pod: Object | None, seen: InstanceSnapshot) -> Condition:
    if pod is None or seen.pod is None:
        return _false("Ready", "PodNotExists", "virt-launcher pod has not yet been scheduled")
    if seen.pod.deleting or seen.pod.ended:
        return _false("Ready", "PodTerminating", "virt-launcher pod is terminating")
    # The guest may be reported before its pod is, which reports the rest a moment later.
    if phase(seen) != "Running" or seen.pod.phase == "Pending":
        return _false("Ready", "GuestNotRunning", "Guest VM is not reported as running")
    found = conditions.find(status_of(pod).get("conditions"), "Ready")
    if found is None:
        message = "virt-launcher pod is missing the Ready condition"
        return _false("Ready", "PodConditionMissing", message)
    kept = ("type", "status", "reason", "message")
    return {key: found[key] for key in kept if found.get(key)}


def _false(type_: str, reason: str, message: str) -> Condition:
    return conditions.condition(type_, False, reason, message)


SUCCESSFUL_CREATE = "SuccessfulCreate"
SUCCESSFUL_DELETE = "SuccessfulDelete"
FAILED_CREATE = "FailedCreate"
RESIZING = "ResizingPod"
CLAIM_NOT_FOUND = "FailedPvcNotFound"


def pod_created(recorder: Recorder, vmi: Object, pod: str) -> None:
    """Return the event of a created pod."""
    recorder.event(vmi, "Normal", SUCCESSFUL_CREATE, f"Created virtual machine pod {pod}")


def pod_deleted(recorder: Recorder, vmi: Object, pod: str) -> None:
    """Return the event of a pod that is being deleted."""
    recorder.event(vmi, "Normal", SUCCESSFUL_DELETE, f"Deleted virtual machine pod {pod}")


def pod_failed(recorder: Recorder, vmi: Object, why: str) -> None:
    """Return the event of a pod that could not be created."""
    recorder.event(vmi, "Warning", FAILED_CREATE, f"Error creating pod: {why}")


def resize_asked(recorder: Recorder, vmi: Object, pod: Object, containers: list[Object]) -> None:
    """Return the event of a pod resize."""
    for old, new in zip(pod["spec"]["containers"], containers, strict=True):
        before = (old.get("resources") or {}).get("requests") or {}
        after = (new.get("resources") or {}).get("requests") or {}
        moved = [f"{n} {before.get(n)} -> {after[n]}" for n in after if after[n] != before.get(n)]
        if moved:
            message = f"Asked to resize pod {pod['metadata']['name']}: {', '.join(moved)}"
            recorder.event(vmi, "Normal", RESIZING, message)


def resize_refused(recorder: Recorder, vmi: Object, obstacle: Obstacle) -> None:
    """Record why the pod may not be resized."""
    recorder.event(vmi, "Warning", obstacle.reason, obstacle.message)


def waits_for(recorder: Recorder, vmi: Object, missing: Problem) -> None:
    """Record what the start is waiting for."""
    recorder.event(vmi, "Warning", missing.reason, missing.message)
