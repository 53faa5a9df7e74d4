"""The second half of the composition root: what runs behind the API once it answers."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from livevirt.catalog import controller as catalog
from livevirt.files.directories import Directories
from livevirt.kube.client.local import LocalClient
from livevirt.kube.control.clock import Now
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.key import Key
from livevirt.kube.control.metrics import Family, Source
from livevirt.kube.control.runtime import Factory, Runtime
from livevirt.kube.controllers import embedded
from livevirt.kube.controllers.storage.claim_controller import Claims
from livevirt.kube.controllers.storage.volume_controller import Volumes
from livevirt.kube.objects import core, quantity
from livevirt.kube.server.http import Front
from livevirt.kube.server.pod_log import Logs
from livevirt.kube.server.services import Services
from livevirt.node import guest_metrics, registration, roster, storage_metrics
from livevirt.node.agent import Agent, GuestWatcher
from livevirt.node.doors import Doors
from livevirt.node.guest import Guest
from livevirt.node.guest_metrics import GuestMetrics
from livevirt.node.host import look
from livevirt.node.images import ImageStore
from livevirt.node.pod_dir import intended
from livevirt.node.pod_usage import PodUsage
from livevirt.node.scratch import Scratch
from livevirt.paths import DataDir, default_data_dir
from livevirt.settings import Settings
from livevirt.vm import controllers, kinds
from livevirt.vm.datavolumes.controller import DataVolumes
from livevirt.vm.datavolumes.importer import Images
from livevirt.vm.guest import access
from livevirt.vm.monitoring import collector
from livevirt.vm.monitoring.collector import Collector
from livevirt.vm.subresources.router import Actions
from livevirt.vm.volumes.usage import Usage

#: Everything `/metrics` may show beside the server's own figures.
FAMILIES: tuple[Family, ...] = (
    *collector.FAMILIES,
    *guest_metrics.FAMILIES,
    *storage_metrics.FAMILIES,
)
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
    images = ImageStore(Path(settings.image_store or default_data_dir() / "images"))
    machines = Collector()
    sources = metrics_sources(machines, agents, data, images)
    front.attach(verbs.handle, {(core.POD.resource, "log"): logs.stream}, sources)
    services.usage_sources.append(
        PodUsage(lambda: ((agent.name, agent.pods()) for agent in agents), services.now)
    )
    factories = [*controllers.ALL, storage(data.volumes, images), machines.run]
    if settings.catalog:
        factories.append(catalog.run)
    wanted = roster.asked(settings.nodes)
    retired = await roster.settle(client, wanted, data.nodes, data.run)
    async with asyncio.TaskGroup() as group:
        running = embedded.run(client, services.store, services.now, services.registry, factories)
        group.create_task(running, name="controllers")
        names = {name: name in retired for name in (*wanted, *retired)}
        nodes = Nodes(names, agents, functools.partial(report_plugged, machines))
        group.create_task(
            _run_nodes(settings, data, images, client, services.now, nodes), name="nodes"
        )


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes to run."""

    retired: dict[str, bool]  # by name
    agents: list[Agent]  # filled once the machine has been looked at
    watcher: GuestWatcher  # of all their guests


async def _run_nodes(
    settings: Settings,
    data: DataDir,
    images: ImageStore,
    client: LocalClient,
    now: Now,
    nodes: Nodes,
) -> None:
    """Find out what this machine can do, then run its nodes."""
    host = await look(data.root / "accelerator.json")
    given = {name: quantity.parse(value) for name, value in settings.node_capacity.items()}
    capacity = {**registration.machine_capacity(settings.nodes), **given}
    used = intended(data.nodes, data.run)
    if used is not None:
        Scratch(data.scratch).sweep(used)
    for name, retired in nodes.retired.items():
        nodes.agents.append(
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
        for agent in nodes.agents:
            agent.watchers.append(nodes.watcher)
            group.create_task(agent.run(), name=agent.name)


def metrics_sources(
    machines: Collector, agents: Sequence[Agent], data: DataDir, images: ImageStore
) -> tuple[Source, ...]:
    """Return the sources of `/metrics` beside the server's own figures."""
    guests = GuestMetrics(lambda: (local for agent in agents for local in agent.pods()))
    directories = {"data": data.root, "volumes": data.volumes, "images": images.root}
    return machines.samples, guests.samples, storage_metrics.source(directories)


def report_plugged(machines: Collector, guest: Guest) -> None:
    """Report what QEMU has plugged in, while a live change is under way."""
    key = Key(guest.intent.namespace, guest.intent.vmi)
    observed = guest.view.observed
    if observed is not None and machines.awaits(key):
        memory = guest.intent.machine.memory.boot + observed.memory.plugged
        machines.guest_changed(key, observed.sockets, memory)


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
