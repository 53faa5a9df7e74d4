"""What the owner of an instance is told: the reasons, and a function that words each."""

from __future__ import annotations

from livevirt.kube.control.events import Recorder
from livevirt.kube.objects.request import Object
from livevirt.vm.lifecycle.vmi.view import Problem
from livevirt.vm.sizing.hot_change import Obstacle

SUCCESSFUL_CREATE = "SuccessfulCreate"
SUCCESSFUL_DELETE = "SuccessfulDelete"
FAILED_CREATE = "FailedCreate"
RESIZING = "ResizingPod"
CLAIM_NOT_FOUND = "FailedPvcNotFound"


def pod_created(recorder: Recorder, vmi: Object, pod: str) -> None:
    """Tell that the pod was created."""
    recorder.event(vmi, "Normal", SUCCESSFUL_CREATE, f"Created virtual machine pod {pod}")


def pod_deleted(recorder: Recorder, vmi: Object, pod: str) -> None:
    """Tell that the pod was asked to end."""
    recorder.event(vmi, "Normal", SUCCESSFUL_DELETE, f"Deleted virtual machine pod {pod}")


def pod_failed(recorder: Recorder, vmi: Object, why: str) -> None:
    """Tell that the pod could not be created."""
    recorder.event(vmi, "Warning", FAILED_CREATE, f"Error creating pod: {why}")


def resize_asked(recorder: Recorder, vmi: Object, pod: Object, containers: list[Object]) -> None:
    """Tell what the pod is to hold from now on."""
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
