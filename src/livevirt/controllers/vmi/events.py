"""What the owner of an instance is told: the reasons, and a function that words each."""

from __future__ import annotations

from livevirt.api.request import Object
from livevirt.control.events import Recorder

SUCCESSFUL_CREATE = "SuccessfulCreate"
SUCCESSFUL_DELETE = "SuccessfulDelete"
FAILED_CREATE = "FailedCreate"
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


def waits_for(recorder: Recorder, vmi: Object, reason: str, message: str) -> None:
    """Tell what the start is waiting for."""
    recorder.event(vmi, "Warning", reason, message)
