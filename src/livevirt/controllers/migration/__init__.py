"""The migration controller: gets a guest to another node, one step at a time.

It promises: a migration never has two target pods; no more migrations go on than the limits allow;
a final migration stays final. It hands a guest to its nodes and then only listens: from the
handoff on the nodes alone decide where the guest runs, and a cancelled migration is asked to stop,
never pulled away under them. Each step can be told from the objects, so a controller that dies
anywhere goes on where it was.
"""

from __future__ import annotations

import asyncio

from livevirt.api import registry
from livevirt.control.events import Recorder
from livevirt.controllers.embedded import Shared
from livevirt.controllers.migration.controller import Migrations
from livevirt.controllers.migration.observation import Sources

COMPONENT = "virtualmachineinstancemigration-controller"


async def run(shared: Shared) -> None:
    """Run the controller until cancelled; a factory for `embedded.run`."""
    recorder = Recorder(shared.client, COMPONENT, shared.now)
    of = shared.informers.of
    sources = Sources(
        migrations=of(registry.MIGRATION),
        instances=of(registry.VMI),
        pods=of(registry.POD),
        policies=of(registry.MIGRATION_POLICY),
        quotas=of(registry.QUOTA),
        namespaces=of(registry.NAMESPACE),
        settings=of(registry.KUBEVIRT),
    )
    controller = Migrations(shared.client, shared.now, recorder, sources)
    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run(), name="migration-events")
        group.create_task(controller.run(), name="migration")
