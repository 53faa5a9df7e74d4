"""The parts of a node of this machine, on which the node agent is the kubelet as well."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from livevirt.files import disk_space
from livevirt.kube.objects.quantity import Quantity
from livevirt.node.agent import NodeParts
from livevirt.node.cgroups import Cgroups
from livevirt.node.host import Host
from livevirt.node.images import ImageStore
from livevirt.node.kubelet_role import KubeletRole
from livevirt.node.process_runtime import Directories, ProcessRuntime
from livevirt.node.registration import Facts, Registration
from livevirt.node.scratch import Scratch
from livevirt.node.volumes import Volumes
from livevirt.node.watched import NodeApi
from livevirt.paths import DataDir

NO_NETWORK = "livevirt runs without a node network"


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What an administrator decides about one node."""

    name: str
    capacity: Mapping[str, Quantity]
    retired: bool = False  # it keeps the pods it has and gets no others


def _user_network(host: Host) -> str:
    """Return why guests are on QEMU's user network; empty if they share one."""
    return host.network.problem if host.network is not None else NO_NETWORK


def setup(
    node: NodeConfig, data: DataDir, images: ImageStore, host: Host
) -> Callable[[NodeApi], NodeParts]:
    """Return what makes the parts of a node with its files in a data directory."""

    def made(api: NodeApi) -> NodeParts:
        cgroups = Cgroups.discover(node.name, node.capacity["cpu"].milli())
        facts = Facts(
            node.name,
            node.capacity,
            host.accelerator,
            host.qemu,
            cgroups.problem,
            offer=host.offer,
            shared_cpus=cgroups.cpuset_problem,
            retired=node.retired,
        )
        pressure = functools.partial(disk_space.pressure, data.root)
        owner = host.account.owner if host.account else None
        promises = disk_space.Promises((data.scratch, data.volumes))
        volumes = Volumes(api.client, images, (data.volumes,), owner, promises)
        directories = Directories(data.nodes / node.name / "pods", data.run)
        return NodeParts(
            ProcessRuntime(directories, host, cgroups, volumes, Scratch(data.scratch)),
            volumes,
            KubeletRole(api, node.capacity),
            Registration(
                api.client, facts, api.now, pressure, functools.partial(_user_network, host)
            ).run,
            unconfined=cgroups.problem,
            shares_cpus=cgroups.cpuset_problem,
        )

    return made
