"""What the owner of a VirtualMachine is told: the reasons, and a function that words each."""

from __future__ import annotations

from livevirt.api.request import Object
from livevirt.control.events import Recorder

SUCCESSFUL_CREATE = "SuccessfulCreate"
SUCCESSFUL_DELETE = "SuccessfulDelete"
FAILED_CREATE = "FailedCreate"
VOLUME_CREATED = "SuccessfulDataVolumeCreate"
VOLUME_FAILED = "FailedDataVolumeCreate"


def started(recorder: Recorder, vm: Object) -> None:
    """Tell that the guest was started."""
    message = (
        "Started the virtual machine by creating the new virtual machine instance "
        f"{vm['metadata']['name']}"
    )
    recorder.event(vm, "Normal", SUCCESSFUL_CREATE, message)


def stopped(recorder: Recorder, vm: Object) -> None:
    """Tell that the guest was asked to stop."""
    message = (
        "Stopped the virtual machine by deleting the virtual machine instance "
        f"{vm['metadata']['name']}"
    )
    recorder.event(vm, "Normal", SUCCESSFUL_DELETE, message)


def not_started(recorder: Recorder, vm: Object, why: str) -> None:
    """Tell that the guest could not be started."""
    recorder.event(vm, "Warning", FAILED_CREATE, f"Error creating virtual machine instance: {why}")


def volume_created(recorder: Recorder, vm: Object, name: str) -> None:
    """Tell that a DataVolume was made."""
    recorder.event(vm, "Normal", VOLUME_CREATED, f"Created DataVolume {name}")


def volume_failed(recorder: Recorder, vm: Object, name: str, why: str) -> None:
    """Tell that a DataVolume could not be made."""
    recorder.event(vm, "Warning", VOLUME_FAILED, f"Error creating DataVolume {name}: {why}")
