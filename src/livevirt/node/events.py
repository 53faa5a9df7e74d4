"""What the owner of a VMI is told by its node; the reasons are KubeVirt's own."""

from __future__ import annotations

from livevirt.api.request import Object
from livevirt.control.events import Recorder
from livevirt.node.ending import Ending

COMPONENT = "virt-handler"
STARTED, STOPPED, SHUTTING_DOWN = "Started", "Stopped", "ShuttingDown"


def started(recorder: Recorder, vmi: Object) -> None:
    recorder.event(vmi, "Normal", STARTED, "VirtualMachineInstance started.")


def shutting_down(recorder: Recorder, vmi: Object) -> None:
    message = "Signaled Graceful Shutdown"
    recorder.event(vmi, "Normal", SHUTTING_DOWN, message)


def ended(recorder: Recorder, vmi: Object, ending: Ending) -> None:
    if ending.phase == "Failed":
        message = f"The VirtualMachineInstance crashed: {ending.message}"
        recorder.event(vmi, "Warning", STOPPED, message)
    else:
        message = f"The VirtualMachineInstance was shut down: {ending.message}"
        recorder.event(vmi, "Normal", STOPPED, message)
