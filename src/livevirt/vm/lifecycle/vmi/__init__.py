"""The VMI controller: gives each instance a pod, tells how far it is, and ends it.

It promises: an instance never has two pods; a pod of an instance that is deleted is deleted; an
instance goes when its pods are gone. What happens once the guest runs is the node's to tell.
"""

from __future__ import annotations

import asyncio

from livevirt.kube.control.events import Recorder
from livevirt.kube.controllers.embedded import Shared
from livevirt.kube.objects import core
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vmi.controller import Instances, Sources

COMPONENT = "virtualmachine-controller"


async def run(shared: Shared) -> None:
    """Run the controller until cancelled; a factory for `embedded.run`."""
    recorder = Recorder(shared.client, COMPONENT, shared.now)
    of = shared.informers.of
    sources = Sources(
        instances=of(kinds.VMI),
        pods=of(core.POD),
        claims=of(core.CLAIM),
        volumes=of(kinds.DATA_VOLUME),
        quotas=of(core.QUOTA),
        limits=of(core.LIMIT_RANGE),
        namespaces=of(core.NAMESPACE),
        settings=of(kinds.KUBEVIRT),
    )
    controller = Instances(shared.client, shared.now, recorder, sources)
    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run(), name="vmi-events")
        group.create_task(controller.run(), name="vmi")
