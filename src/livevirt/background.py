"""The second half of the composition root: what runs behind the API once it answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from livevirt import background_storage
from livevirt.kube.client.local import LocalClient
from livevirt.kube.control.clock import Now
from livevirt.kube.controllers import embedded
from livevirt.kube.objects import core, quantity
from livevirt.kube.server.http import Front
from livevirt.kube.server.pod_log import Logs
from livevirt.kube.server.services import StoreReader
from livevirt.kube.store import Store
from livevirt.node import registration, roster
from livevirt.node.agent import Agent
from livevirt.node.doors import Doors
from livevirt.node.host import look
from livevirt.node.images import ImageStore
from livevirt.node.pod_dir import intended
from livevirt.node.scratch import Scratch
from livevirt.paths import DataDir, default_data_dir
from livevirt.settings import Settings
from livevirt.vm import evacuation, migration, workload_update
from livevirt.vm.config import controller
from livevirt.vm.guest import access
from livevirt.vm.instancetypes import catalog
from livevirt.vm.lifecycle import vm, vmi
from livevirt.vm.subresources.router import Actions

CONTROLLERS = (
    vm.run,
    vmi.run,
    controller.run,
    migration.run,
    workload_update.run,
    evacuation.run,
)


async def run(
    settings: Settings, data: DataDir, client: LocalClient, store: Store, front: Front, now: Now
) -> None:
    """Run the controllers and the node agents until cancelled."""
    agents: list[Agent] = []  # filled once the machine has been looked at
    doors = Doors(agents)
    verbs = Actions(client, doors, access.verbs(doors))
    reader = StoreReader(store)
    logs = Logs(doors, lambda namespace, name: reader.get(core.POD, name, namespace))
    front.attach(verbs.handle, {(core.POD.resource, "log"): logs.stream})
    images = ImageStore(Path(settings.image_store or default_data_dir() / "images"))
    factories = [*CONTROLLERS, background_storage.storage(data.volumes, images)]
    if settings.catalog:
        factories.append(catalog.run)
    wanted = roster.asked(settings.nodes)
    retired = await roster.settle(client, wanted, data.nodes, data.run)
    async with asyncio.TaskGroup() as group:
        controllers = embedded.run(client, store, now, factories)
        group.create_task(controllers, name="controllers")
        nodes = {name: name in retired for name in (*wanted, *retired)}
        group.create_task(
            _run_nodes(settings, data, images, client, now, agents, nodes), name="nodes"
        )


async def _run_nodes(
    settings: Settings,
    data: DataDir,
    images: ImageStore,
    client: LocalClient,
    now: Now,
    agents: list[Agent],
    nodes: dict[str, bool],  # and whether each is retired
) -> None:
    """Find out what this machine can do, then run its nodes."""
    host = await look(data.root / "accelerator.json")
    given = {name: quantity.parse(value) for name, value in settings.node_capacity.items()}
    capacity = {**registration.machine_capacity(settings.nodes), **given}
    used = intended(data.nodes, data.run)
    if used is not None:
        Scratch(data.scratch).sweep(used)
    for name, retired in nodes.items():
        agents.append(Agent(name, client, data, images, capacity, host, now, retired=retired))
    async with asyncio.TaskGroup() as group:
        for agent in agents:
            group.create_task(agent.run(), name=agent.name)
