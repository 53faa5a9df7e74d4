"""The events of workload updates: a function that records each."""

from __future__ import annotations

from livevirt.kube.control.events import Recorder
from livevirt.kube.objects.request import Object


def migration_created(recorder: Recorder, vmi: Object, migration: str, why: str) -> None:
    """Record that a migration was created."""
    message = f"Created migration {migration}: the guest needs {why}"
    recorder.event(vmi, "Normal", "SuccessfulCreate", message)


def migration_refused(recorder: Recorder, vmi: Object, why: str) -> None:
    """Record that the API server refused a migration."""
    recorder.event(vmi, "Warning", "FailedCreate", f"Error creating a migration: {why}")


def evicted(recorder: Recorder, vmi: Object, pod: str) -> None:
    """Record that a pod was evicted because it is outdated."""
    recorder.event(vmi, "Normal", "SuccessfulEvict", f"Evicted pod {pod}, which is outdated")


def eviction_refused(recorder: Recorder, vmi: Object, pod: str, why: str) -> None:
    """Record that a pod could not be evicted."""
    recorder.event(vmi, "Warning", "FailedEvict", f"Error evicting pod {pod}: {why}")


def migration_deleted(recorder: Recorder, vmi: Object, migration: str) -> None:
    """Record that a migration was deleted because it is no longer needed."""
    message = f"Deleted migration {migration}: the guest does not need it any more"
    recorder.event(vmi, "Normal", "SuccessfulChangeAbortion", message)


def deletion_refused(recorder: Recorder, vmi: Object, migration: str, why: str) -> None:
    """Record that a migration could not be deleted."""
    message = f"Error deleting migration {migration}: {why}"
    recorder.event(vmi, "Warning", "FailedChangeAbortion", message)


def stuck(recorder: Recorder, vmi: Object, why: str) -> None:
    """Record why a guest waits for capacity where it runs."""
    message = f"The guest waits for room where it is and does not migrate: {why}"
    recorder.event(vmi, "Warning", "NoMigration", message)
