"""The migration controller: gets a guest to another node, one step at a time.

It promises: a migration never has two target pods; no more migrations go on than the limits allow;
a final migration stays final. It hands a guest to its nodes and then only listens: from the
handoff on the nodes alone decide where the guest runs, and a cancelled migration is asked to stop,
never pulled away under them. Each step can be told from the objects, so a controller that dies
anywhere goes on where it was.
"""

from __future__ import annotations

import asyncio

from livevirt.kube.control.events import Recorder
from livevirt.kube.controllers.embedded import Shared
from livevirt.kube.objects import core
from livevirt.vm import kinds
from livevirt.vm.migration.controller import Migrations
from livevirt.vm.migration.observation import Sources

COMPONENT = "virtualmachineinstancemigration-controller"


async def run(shared: Shared) -> None:
    """Run the controller until cancelled; a factory for `embedded.run`."""
    recorder = Recorder(shared.client, COMPONENT, shared.now)
    of = shared.informers.of
    sources = Sources(
        migrations=of(kinds.MIGRATION),
        instances=of(kinds.VMI),
        pods=of(core.POD),
        policies=of(kinds.MIGRATION_POLICY),
        quotas=of(core.QUOTA),
        namespaces=of(core.NAMESPACE),
        settings=of(kinds.KUBEVIRT),
    )
    controller = Migrations(shared.client, shared.now, recorder, sources)
    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run(), name="migration-events")
        group.create_task(controller.run(), name="migration")
