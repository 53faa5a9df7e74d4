"""`livevirt node`: the node agent on a node of a Kubernetes cluster.

It is that of the embedded server. The kubelet runs the pods; the agent starts the guests in them,
follows them by QMP and reports their instances. It may end and start again while guests run.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from livevirt.cluster import node_endpoint
from livevirt.cluster.controller import utc_now
from livevirt.cluster.endpoints import Endpoints
from livevirt.files import private
from livevirt.kube.client.access import Access
from livevirt.kube.client.limits import COMPONENT
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.client.transport import Transport
from livevirt.kube.control.requests import Requests
from livevirt.kube.control.supervisor import Supervisor
from livevirt.node import cgroups
from livevirt.node.agent import Agent, NodeParts
from livevirt.node.attached_claims import AttachedClaims
from livevirt.node.guest_endpoints import GuestEndpoints
from livevirt.node.guest_metrics import GuestMetrics
from livevirt.node.host import Host, look
from livevirt.node.kubelet_runtime import Directories, KubeletRuntime
from livevirt.node.node_labels import NodeLabels
from livevirt.node.pod_volumes import PodVolumes
from livevirt.node.readiness_gate import ReadinessGate
from livevirt.node.registration import Facts
from livevirt.node.watched import NodeApi
from livevirt.paths import DataDir

NAME = "livevirt-node"


@dataclass(frozen=True, slots=True)
class Settings:
    """How the agent of one node runs."""

    node: str
    data_dir: Path
    kubelet: Path  # the kubelet's root directory
    metrics: tuple[str, int]  # where health and metrics are served
    listen: tuple[str, int]  # where `livevirt api` is served
    address: str  # under which it reaches us


async def run(access: Access, settings: Settings, ready: Callable[[int], None]) -> None:
    """Run the agent until cancelled; call `ready` with the port of its endpoints once it works."""
    data = DataDir(settings.data_dir)
    private.folders(data.root)
    requests, supervisor = Requests(), Supervisor()
    transport = Transport(access, allowed=COMPONENT, observer=requests)
    client = RemoteClient(access, manager=NAME, transport=transport)
    host = await look(data.accelerator)
    agents: list[Agent] = []
    guests = GuestMetrics(lambda: (pod for agent in agents for pod in agent.pods()))
    endpoints = Endpoints(sources=(guests.samples, requests.samples, supervisor.samples))
    try:
        async with (
            endpoints.listening(*settings.metrics) as metrics_port,
            node_endpoint.listening(
                client, GuestEndpoints(agents), utc_now, *settings.listen
            ) as port,
            asyncio.TaskGroup() as group,
        ):
            setup = functools.partial(_parts, settings, host, f"{settings.address}:{port}")
            agents.append(Agent(settings.node, client, host, utc_now, setup))
            ready(metrics_port)
            offering = supervisor.keep("device-plugin", lambda: _offer_devices(settings, host))
            group.create_task(offering, name="device-plugin")
            group.create_task(agents[0].run(supervisor), name="agent")
    finally:
        await transport.close()


async def _offer_devices(settings: Settings, host: Host) -> None:
    """Offer the devices of the node to pods of its kubelet until cancelled."""
    from livevirt.cluster import device_plugin  # loads grpcio, which no other component needs

    devices = device_plugin.usable(device_plugin.DEVICES, kvm=host.accelerator.name == "kvm")
    await device_plugin.run(devices, settings.kubelet / device_plugin.DIRECTORY)


def _parts(settings: Settings, host: Host, address: str, api: NodeApi) -> NodeParts:
    """Return what a node of a cluster consists of."""
    hierarchies, links = cgroups.discover(), settings.data_dir / "attachments"
    volumes = PodVolumes(api.client, AttachedClaims(api.watched.pods, hierarchies, links))
    pods = settings.data_dir / "nodes" / settings.node / "pods"
    runtime = KubeletRuntime(
        Directories(pods, settings.kubelet), host.accelerator, hierarchies, volumes
    )
    facts = Facts(settings.node, {}, host.accelerator, host.qemu, offer=host.offer)
    labels = NodeLabels(api.client, facts, api.now, address)
    return NodeParts(runtime, volumes, ReadinessGate(api), labels.run, watch=runtime.watch_stops)
