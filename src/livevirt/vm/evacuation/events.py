"""What the owner of an instance is told of its leaving: a function that words each."""

from __future__ import annotations

from livevirt.kube.control.events import Recorder
from livevirt.kube.objects.request import Object


def asked(recorder: Recorder, vmi: Object, migration: str, node: str) -> None:
    """Tell that a migration was asked for."""
    message = f"Created migration {migration}: the guest has to leave node {node}"
    recorder.event(vmi, "Normal", "SuccessfulCreate", message)


def not_asked(recorder: Recorder, vmi: Object, why: str) -> None:
    """Tell that a migration was refused."""
    recorder.event(vmi, "Warning", "FailedCreate", f"Error creating a migration: {why}")


def stuck(recorder: Recorder, vmi: Object, node: str, why: str) -> None:
    """Tell why the guest cannot leave."""
    message = f"The guest has to leave node {node} and cannot: {why}"
    recorder.event(vmi, "Warning", "NoMigration", message)
