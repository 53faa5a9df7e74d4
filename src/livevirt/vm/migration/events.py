"""The events of migrations: their reasons, and a function that records each."""

from __future__ import annotations

from datetime import timedelta

from livevirt.kube.control.events import Recorder
from livevirt.kube.objects.request import Object, status_of

SUCCESSFUL_CREATE = "SuccessfulCreate"
SUCCESSFUL_DELETE = "SuccessfulDelete"
FAILED_CREATE = "FailedCreate"
HANDED_OVER = "SuccessfulHandOver"
ABORTED = "SuccessfulAbortMigration"
SUCCESSFUL = "SuccessfulMigration"
FAILED = "FailedMigration"
BACK_OFF = "MigrationBackoff"


def pod_created(recorder: Recorder, migration: Object, pod: str) -> None:
    """Record that the target pod was created."""
    recorder.event(migration, "Normal", SUCCESSFUL_CREATE, f"Created migration target pod {pod}")


def pod_refused(recorder: Recorder, migration: Object, why: str) -> None:
    """Record that the API server refused the target pod."""
    recorder.event(migration, "Warning", FAILED_CREATE, f"Error creating pod: {why}")


def pod_deleted(recorder: Recorder, migration: Object, pod: str) -> None:
    """Record that a pod was deleted."""
    recorder.event(migration, "Normal", SUCCESSFUL_DELETE, f"Deleted virtual machine pod {pod}")


def handed_over(recorder: Recorder, migration: Object, source: str, target: str) -> None:
    """Record the handoff to the nodes."""
    message = f"Nodes {source} and {target} take over"
    recorder.event(migration, "Normal", HANDED_OVER, message)


def abort_requested(recorder: Recorder, migration: Object) -> None:
    """Record that the nodes were asked to abort."""
    recorder.event(migration, "Normal", ABORTED, "The nodes were asked to stop the migration")


def succeeded(recorder: Recorder, migration: Object, vmi: Object | None) -> None:
    """Record the success on the migration and on the instance."""
    node = status_of(vmi).get("nodeName") or "its target"
    for obj in (migration, vmi):
        if obj is not None:
            recorder.event(obj, "Normal", SUCCESSFUL, f"The guest has moved to {node}")


def failed(recorder: Recorder, migration: Object, vmi: Object | None, why: str) -> None:
    """Record the failure on the migration and on the instance."""
    name = migration["metadata"]["name"]
    for obj in (migration, vmi):
        if obj is not None:
            recorder.event(obj, "Warning", FAILED, f"Migration {name} failed: {why}")


def backing_off(recorder: Recorder, migration: Object, vmi: Object, left: timedelta) -> None:
    """Record how long a migration waits because earlier ones failed."""
    name, seconds = migration["metadata"]["name"], left.total_seconds()
    message = f"Migration {name} waits {seconds:.0f} s, since earlier ones failed"
    recorder.event(vmi, "Warning", BACK_OFF, message)
