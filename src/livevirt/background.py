"""The second half of the composition root: what runs behind the API once it answers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from livevirt.catalog import controller as catalog
from livevirt.files import private
from livevirt.files.raw_file import Directories
from livevirt.files.reserve import Reserve
from livevirt.kube.client.local import LocalClient
from livevirt.kube.control.cache import Key
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.metrics import Family, Source
from livevirt.kube.control.runtime import Factory, Runtime
from livevirt.kube.control.stalls import FAMILIES as STALL_FAMILIES
from livevirt.kube.control.stalls import StallMonitor
from livevirt.kube.control.supervisor import FAMILIES as SUPERVISOR_FAMILIES
from livevirt.kube.control.supervisor import Supervisor
from livevirt.kube.controllers import embedded
from livevirt.kube.controllers import services as service_controller
from livevirt.kube.controllers.embedded import Environment
from livevirt.kube.controllers.services import Ranges
from livevirt.kube.controllers.storage.claim_controller import Claims
from livevirt.kube.controllers.storage.claim_controller import Sources as StorageSources
from livevirt.kube.controllers.storage.volume_controller import Volumes
from livevirt.kube.objects import core, quantity
from livevirt.kube.objects.quantity import Quantity
from livevirt.kube.server.http import Front
from livevirt.kube.server.pod_log import Logs
from livevirt.kube.server.services import Services
from livevirt.node import guest_metrics, registration, storage_metrics
from livevirt.node.agent import Agent
from livevirt.node.embedded import NodeConfig, setup
from livevirt.node.guest import Guest
from livevirt.node.guest_endpoints import GuestEndpoints
from livevirt.node.guest_metrics import GuestMetrics
from livevirt.node.host import look
from livevirt.node.images import FOLDER, ImageStore
from livevirt.node.network import published
from livevirt.node.network.network import NodeNetwork
from livevirt.node.pod_dir import intended, running_intents
from livevirt.node.pod_usage import PodUsage
from livevirt.node.scratch import Scratch
from livevirt.paths import DataDir, default_data_dir
from livevirt.settings import Settings
from livevirt.vm import controllers, kinds
from livevirt.vm.datavolumes.controller import DataVolumes
from livevirt.vm.datavolumes.controller import Sources as DataVolumeSources
from livevirt.vm.datavolumes.importer import Images
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.monitoring import collector
from livevirt.vm.monitoring.collector import Collector
from livevirt.vm.subresources import router
from livevirt.vm.subresources.router import Actions
from livevirt.vm.volumes.usage import Usage

log = logging.getLogger(__name__)

#: Everything `/metrics` may show beside the server's own figures.
FAMILIES: tuple[Family, ...] = (
    *collector.FAMILIES,
    *guest_metrics.FAMILIES,
    *storage_metrics.FAMILIES,
    *SUPERVISOR_FAMILIES,
    *STALL_FAMILIES,
)
NODE_AGENT = "livevirt-node"
STORAGE = "livevirt-storage"
_HOLD_SECONDS = 5.0


async def run(
    settings: Settings, data: DataDir, client: LocalClient, services: Services, front: Front
) -> None:
    """Run the controllers and the node agents until cancelled."""
    supervisor = Supervisor()
    front.health.checks.append(supervisor.failing)
    agents: list[Agent] = []  # filled once the host has been probed
    endpoints = GuestEndpoints(agents)
    verbs = Actions(client.for_component("subresources"), endpoints, router.guest_verbs(endpoints))
    logs = Logs(endpoints, lambda namespace, name: services.reader.get(core.POD, name, namespace))
    images = ImageStore(Path(settings.image_store or default_data_dir() / FOLDER))
    machines = Collector()
    stalls = StallMonitor()
    sources = (*metrics_sources(machines, agents, data, images), supervisor.samples, stalls.samples)
    front.attach(verbs.handle, {(core.POD.resource, "log"): logs.stream}, sources)
    services.usage_sources.append(
        PodUsage(lambda: ((agent.name, agent.pods()) for agent in agents), services.now)
    )
    network = await asyncio.to_thread(adopted_network, data, settings.port)
    factories = [*controllers.ALL, storage(data.volumes, images), machines.run]
    factories += service_factories(network)
    if settings.catalog:
        factories.append(catalog.run)
    await asyncio.to_thread(_restrict, data, images)
    wanted = registration.asked(settings.nodes)
    settling = functools.partial(registration.settle, client, wanted, data.nodes, data.run)
    retired = await supervisor.obtain("settle-nodes", settling)
    async with contextlib.aclosing(network), asyncio.TaskGroup() as group:
        running = embedded.run(
            client,
            services.store,
            services.now,
            services.registry,
            factories,
            Environment(launcher.not_run, supervisor),
        )
        group.create_task(running, name="controllers")
        group.create_task(supervisor.keep("node-network", network.run))
        group.create_task(supervisor.keep("stall-monitor", stalls.run))
        group.create_task(supervisor.keep("verify-database", services.store.verify))
        group.create_task(supervisor.keep("disk-reserve", lambda: _hold(Reserve(data.reserve))))
        # The controllers run meanwhile.
        probed = await supervisor.obtain("probe-host", lambda: look(data.accelerator))
        host = replace(probed, network=network)
        _sweep_scratch(data)
        capacity = _capacity(settings)
        named = client.for_component(NODE_AGENT)

        async def run_agent(name: str) -> None:
            node = NodeConfig(name, capacity, name in retired)
            parts = setup(node, data, images, host)
            agent = Agent(name, named, host, services.now, parts)
            agent.watchers.append(functools.partial(report_plugged, machines))
            agents[:] = [each for each in agents if each.name != name] + [agent]
            await agent.run(supervisor)

        for name in (*wanted, *retired):
            work = functools.partial(run_agent, name)
            group.create_task(supervisor.keep(name, work), name=name)


def service_factories(network: NodeNetwork) -> tuple[Factory, ...]:
    """Return what runs the controllers of Services and publishes them on the network."""

    async def ranges() -> Ranges | None:
        block = await network.block()
        return Ranges(block.services4, block.services6) if block is not None else None

    return service_controller.factory(ranges), published.factory(network)


def adopted_network(data: DataDir, api_port: int) -> NodeNetwork:
    """Return the node network, with the guests that an earlier run left on it."""
    network = NodeNetwork(data.network, api_port)
    for intent in running_intents(data.nodes, data.run):
        network.adopt(intent.pod_uid, intent.vmi_uid, intent.ports)
    return network


def _capacity(settings: Settings) -> dict[str, Quantity]:
    """Return the capacity of each node: the machine's, overridden by the settings."""
    given = {name: quantity.parse(value) for name, value in settings.node_capacity.items()}
    return {**registration.machine_capacity(settings.nodes), **given}


def _restrict(data: DataDir, images: ImageStore) -> None:
    """Make the files private that an earlier release left readable by everybody."""
    try:
        private.restrict(data.contents)
        images.restrict()
    except OSError as error:
        log.warning("permissions not restricted", extra={"error": str(error)})


async def _hold(reserve: Reserve) -> None:
    """Reserve the space again that a full disk made us release, as soon as there is some."""
    while True:
        await asyncio.to_thread(reserve.hold)
        await asyncio.sleep(_HOLD_SECONDS)


def _sweep_scratch(data: DataDir) -> None:
    """Delete the scratch directories that no pod uses."""
    used = intended(data.nodes, data.run)
    if used is not None:
        Scratch(data.scratch).sweep(used)


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
        usage = Usage(of(core.POD), of(kinds.VMI))
        claims, classes = of(core.CLAIM), of(core.STORAGE_CLASS)
        directories = Directories(root)
        client = runtime.client.for_component(STORAGE)
        recorder = Recorder(client, STORAGE, runtime.now)
        storage = StorageSources(claims, of(core.VOLUME), classes, usage)
        sources = DataVolumeSources(of(kinds.DATA_VOLUME), claims, classes, usage)
        running = (
            Claims(client, recorder, directories, storage),
            Volumes(client, recorder, directories, storage),
            DataVolumes(client, runtime.now, recorder, directories, images, sources),
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(recorder.run(), name="storage-events")
            for controller in running:
                group.create_task(controller.run(), name=type(controller).__name__.lower())

    return run
