"""Evacuation: guests leave nodes that are drained, and those their eviction was asked for on.

It promises: only guests whose eviction strategy wants it are moved, no more at a time than may
migrate, and the mark of an eviction goes once the guest has left.
"""

from __future__ import annotations

import asyncio

from livevirt.kube.control.events import Recorder
from livevirt.kube.controllers.embedded import Shared
from livevirt.vm.evacuation.controller import Evacuations

COMPONENT = "evacuation-controller"


async def run(shared: Shared) -> None:
    """Run the controller until cancelled; a factory for `embedded.run`."""
    recorder = Recorder(shared.client, COMPONENT, shared.now)
    controller = Evacuations(shared.client, recorder, shared.informers)
    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run(), name="evacuation-events")
        group.create_task(controller.run(), name="evacuation")
