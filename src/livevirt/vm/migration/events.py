"""What is told about migrations: the reasons, and a function that words each."""

from __future__ import annotations

from datetime import timedelta

from livevirt.kube.control.events import Recorder
from livevirt.kube.objects.request import Object

SUCCESSFUL_CREATE = "SuccessfulCreate"
SUCCESSFUL_DELETE = "SuccessfulDelete"
FAILED_CREATE = "FailedCreate"
HANDED_OVER = "SuccessfulHandOver"
ABORTED = "SuccessfulAbortMigration"
SUCCESSFUL = "SuccessfulMigration"
FAILED = "FailedMigration"
BACK_OFF = "MigrationBackoff"


def pod_created(recorder: Recorder, migration: Object, pod: str) -> None:
    """Tell that the target pod was created."""
    recorder.event(migration, "Normal", SUCCESSFUL_CREATE, f"Created migration target pod {pod}")


def pod_refused(recorder: Recorder, migration: Object, why: str) -> None:
    """Tell that the target pod could not be created."""
    recorder.event(migration, "Warning", FAILED_CREATE, f"Error creating pod: {why}")


def pod_deleted(recorder: Recorder, migration: Object, pod: str) -> None:
    """Tell that a pod was asked to end."""
    recorder.event(migration, "Normal", SUCCESSFUL_DELETE, f"Deleted virtual machine pod {pod}")


def handed_over(recorder: Recorder, migration: Object, source: str, target: str) -> None:
    """Tell that the nodes may begin."""
    message = f"Nodes {source} and {target} take over"
    recorder.event(migration, "Normal", HANDED_OVER, message)


def abort_asked(recorder: Recorder, migration: Object) -> None:
    """Tell that the nodes were asked to stop."""
    recorder.event(migration, "Normal", ABORTED, "The nodes were asked to stop the migration")


def succeeded(recorder: Recorder, migration: Object, vmi: Object | None) -> None:
    """Tell that the guest has moved, the owner of the guest too."""
    node = ((vmi or {}).get("status") or {}).get("nodeName") or "its target"
    for obj in (migration, vmi):
        if obj is not None:
            recorder.event(obj, "Normal", SUCCESSFUL, f"The guest has moved to {node}")


def failed(recorder: Recorder, migration: Object, vmi: Object | None, why: str) -> None:
    """Tell that the guest stays where it is, the owner of the guest too."""
    name = migration["metadata"]["name"]
    for obj in (migration, vmi):
        if obj is not None:
            recorder.event(obj, "Warning", FAILED, f"Migration {name} failed: {why}")


def backs_off(recorder: Recorder, migration: Object, vmi: Object, left: timedelta) -> None:
    """Tell how long a migration waits because earlier ones failed."""
    name, seconds = migration["metadata"]["name"], left.total_seconds()
    message = f"Migration {name} waits {seconds:.0f} s, since earlier ones failed"
    recorder.event(vmi, "Warning", BACK_OFF, message)
