"""The VM controller: starts and stops instances as run strategies and requests say.

It promises: a VM has at most one instance, named like it; what a person asked for is done once;
nothing is written into a VM's spec but the run strategy of a start that was asked for.
"""

from __future__ import annotations

import asyncio

from livevirt.kube.control.events import Recorder
from livevirt.kube.controllers.embedded import Shared
from livevirt.vm.lifecycle.vm.controller import VirtualMachines

COMPONENT = "virtualmachine-controller"


async def run(shared: Shared) -> None:
    """Run the controller until cancelled; a factory for `embedded.run`."""
    recorder = Recorder(shared.client, COMPONENT, shared.now)
    controller = VirtualMachines(shared.client, shared.now, recorder, shared.informers)
    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run(), name="vm-events")
        group.create_task(controller.run(), name="vm")
