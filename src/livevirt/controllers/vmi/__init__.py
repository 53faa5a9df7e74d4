"""The VMI controller: gives each instance a pod, tells how far it is, and ends it.

It promises: an instance never has two pods; a pod of an instance that is deleted is deleted; an
instance goes when its pods are gone. What happens once the guest runs is the node's to tell.
"""

from __future__ import annotations

import asyncio

from livevirt.api import registry
from livevirt.control.events import Recorder
from livevirt.controllers.embedded import Shared
from livevirt.controllers.vmi.controller import Instances, Sources

COMPONENT = "virtualmachine-controller"


async def run(shared: Shared) -> None:
    """Run the controller until cancelled; a factory for `embedded.run`."""
    recorder = Recorder(shared.client, COMPONENT, shared.now)
    of = shared.informers.of
    sources = Sources(
        instances=of(registry.VMI),
        pods=of(registry.POD),
        claims=of(registry.CLAIM),
        volumes=of(registry.DATA_VOLUME),
        quotas=of(registry.QUOTA),
        limits=of(registry.LIMIT_RANGE),
        namespaces=of(registry.NAMESPACE),
        settings=of(registry.KUBEVIRT),
    )
    controller = Instances(shared.client, shared.now, recorder, sources)
    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run(), name="vmi-events")
        group.create_task(controller.run(), name="vmi")
