"""CPU topology: what a guest gets when the manifest leaves it open, and how far it may grow."""

from __future__ import annotations

import msgspec

from livevirt.rollout.config import Defaults
from livevirt.rollout.instance import Cpu, Resources

MOST_VCPUS = 512  # a computed maximum stays below it; an explicit one need not


class Topology(msgspec.Struct, frozen=True):
    """Whole numbers of each, at least one."""

    sockets: int
    cores: int = 1
    threads: int = 1

    @property
    def vcpus(self) -> int:
        """How many CPUs the guest counts."""
        return self.sockets * self.cores * self.threads


def topology(cpu: Cpu, resources: Resources) -> Topology:
    """Return the topology a spec stands for.

    Nothing given: a socket per CPU of the limit, else of the request, else one. Anything given:
    the rest is one. KubeVirt leaves the rest at zero there, which keeps such guests from growing.
    """
    if cpu.vcpus:
        return Topology(cpu.sockets or 1, cpu.cores or 1, cpu.threads or 1)
    asked = resources.limit("cpu") or resources.request("cpu")
    return Topology(max(asked.value(), 1) if asked is not None else 1)


def max_sockets(given: int, chosen: Topology, defaults: Defaults) -> int:
    """Return how many sockets the guest may ever have."""
    if given:
        return given
    if defaults.max_cpu_sockets:
        return max(defaults.max_cpu_sockets, chosen.sockets)
    per_socket = chosen.cores * chosen.threads
    wanted = chosen.sockets * defaults.max_hotplug_ratio
    if wanted * per_socket > MOST_VCPUS:
        return max(MOST_VCPUS // per_socket, chosen.sockets)
    return wanted
