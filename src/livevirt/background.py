"""The second half of the composition root: what runs behind the API once it answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from livevirt.catalog import controller as catalog
from livevirt.files.directories import Directories
from livevirt.kube.client.local import LocalClient
from livevirt.kube.control.clock import Now
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.runtime import Factory, Runtime
from livevirt.kube.controllers import embedded
from livevirt.kube.controllers.storage.claim_controller import Claims
from livevirt.kube.controllers.storage.volume_controller import Volumes
from livevirt.kube.objects import core, quantity
from livevirt.kube.server.http import Front
from livevirt.kube.server.pod_log import Logs
from livevirt.kube.server.services import Services
from livevirt.node import registration, roster
from livevirt.node.agent import Agent
from livevirt.node.doors import Doors
from livevirt.node.host import look
from livevirt.node.images import ImageStore
from livevirt.node.pod_dir import intended
from livevirt.node.scratch import Scratch
from livevirt.paths import DataDir, default_data_dir
from livevirt.settings import Settings
from livevirt.vm import controllers, kinds
from livevirt.vm.datavolumes.controller import DataVolumes
from livevirt.vm.datavolumes.importer import Images
from livevirt.vm.guest import access
from livevirt.vm.subresources.router import Actions
from livevirt.vm.volumes.usage import Usage

NODE_AGENT = "livevirt-node"
STORAGE = "livevirt-storage"


async def run(
    settings: Settings, data: DataDir, client: LocalClient, services: Services, front: Front
) -> None:
    """Run the controllers and the node agents until cancelled."""
    agents: list[Agent] = []  # filled once the machine has been looked at
    doors = Doors(agents)
    verbs = Actions(client.for_component("subresources"), doors, access.verbs(doors))
    logs = Logs(doors, lambda namespace, name: services.reader.get(core.POD, name, namespace))
    front.attach(verbs.handle, {(core.POD.resource, "log"): logs.stream})
    images = ImageStore(Path(settings.image_store or default_data_dir() / "images"))
    factories = [*controllers.ALL, storage(data.volumes, images)]
    if settings.catalog:
        factories.append(catalog.run)
    wanted = roster.asked(settings.nodes)
    retired = await roster.settle(client, wanted, data.nodes, data.run)
    async with asyncio.TaskGroup() as group:
        running = embedded.run(client, services.store, services.now, services.registry, factories)
        group.create_task(running, name="controllers")
        nodes = {name: name in retired for name in (*wanted, *retired)}
        group.create_task(
            _run_nodes(settings, data, images, client, services.now, agents, nodes), name="nodes"
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
        agents.append(
            Agent(
                name,
                client.for_component(NODE_AGENT),
                data,
                images,
                capacity,
                host,
                now,
                retired=retired,
            )
        )
    async with asyncio.TaskGroup() as group:
        for agent in agents:
            group.create_task(agent.run(), name=agent.name)


def storage(root: Path, images: Images) -> Factory:
    """Return what runs the controllers of claims, volumes and DataVolumes below `root`."""

    async def run(runtime: Runtime) -> None:
        of = runtime.informers.of
        claims, volumes = of(core.CLAIM), of(core.VOLUME)
        classes, datavolumes = of(core.STORAGE_CLASS), of(kinds.DATA_VOLUME)
        usage = Usage(of(core.POD), of(kinds.VMI))
        directories = Directories(root)
        client = runtime.client.for_component(STORAGE)
        recorder = Recorder(client, STORAGE, runtime.now)
        parts = (client, recorder, directories, usage)
        running = (
            Claims(*parts, claims=claims, volumes=volumes, classes=classes),
            Volumes(*parts, claims=claims, volumes=volumes),
            DataVolumes(
                client, runtime.now, recorder, directories, usage, images,
                datavolumes=datavolumes, claims=claims, classes=classes,
            ),
        )  # fmt: skip
        async with asyncio.TaskGroup() as group:
            group.create_task(recorder.run(), name="storage-events")
            for controller in running:
                group.create_task(controller.run(), name=type(controller).__name__.lower())

    return run
