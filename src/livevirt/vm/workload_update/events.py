"""What the owner of an instance is told of another pod for it: a function that words each."""

from __future__ import annotations

from livevirt.kube.control.events import Recorder
from livevirt.kube.objects.request import Object


def asked(recorder: Recorder, vmi: Object, migration: str, why: str) -> None:
    """Tell that a migration was asked for."""
    message = f"Created migration {migration}: the guest needs {why}"
    recorder.event(vmi, "Normal", "SuccessfulCreate", message)


def not_asked(recorder: Recorder, vmi: Object, why: str) -> None:
    """Tell that a migration was refused."""
    recorder.event(vmi, "Warning", "FailedCreate", f"Error creating a migration: {why}")


def evicted(recorder: Recorder, vmi: Object, pod: str) -> None:
    """Tell that the guest has to end because its pod is outdated."""
    recorder.event(vmi, "Normal", "SuccessfulEvict", f"Evicted pod {pod}, which is outdated")


def not_evicted(recorder: Recorder, vmi: Object, pod: str, why: str) -> None:
    """Tell that the pod could not be evicted."""
    recorder.event(vmi, "Warning", "FailedEvict", f"Error evicting pod {pod}: {why}")


def aborted(recorder: Recorder, vmi: Object, migration: str) -> None:
    """Tell that a migration was called off."""
    message = f"Deleted migration {migration}: the guest does not need it any more"
    recorder.event(vmi, "Normal", "SuccessfulChangeAbortion", message)


def not_aborted(recorder: Recorder, vmi: Object, migration: str, why: str) -> None:
    """Tell that a migration could not be called off."""
    message = f"Error deleting migration {migration}: {why}"
    recorder.event(vmi, "Warning", "FailedChangeAbortion", message)


def stays(recorder: Recorder, vmi: Object, why: str) -> None:
    """Tell why a guest waits for room where it is."""
    message = f"The guest waits for room where it is and does not migrate: {why}"
    recorder.event(vmi, "Warning", "NoMigration", message)
