"""The workload updater: gives guests other pods where theirs cannot become what they must be.

It promises: a guest is moved only if what it needs cannot happen where it is, and only by a method
that the KubeVirt object lists; it is never ended for the sake of a size; a move that nobody needs
any more is called off, unless the guest has arrived.
"""

from __future__ import annotations

import asyncio

from livevirt.kube.control.events import Recorder
from livevirt.kube.controllers.embedded import Shared
from livevirt.vm.workload_update.controller import WorkloadUpdates

COMPONENT = "workload-update-controller"


async def run(shared: Shared) -> None:
    """Run the controller until cancelled; a factory for `embedded.run`."""
    recorder = Recorder(shared.client, COMPONENT, shared.now)
    controller = WorkloadUpdates(shared.client, shared.now, recorder, shared.informers)
    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run(), name="workload-update-events")
        group.create_task(controller.run(), name="workload-update")
