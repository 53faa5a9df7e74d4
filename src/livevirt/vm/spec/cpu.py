"""CPU topology: what a guest gets when the manifest leaves it open, and how far it may grow."""

from __future__ import annotations

import msgspec

from livevirt.vm.config.settings import Defaults
from livevirt.vm.spec.instance import Cpu, Resources

#: Every QEMU, emulated or not, numbers that many CPUs; KVM some more. A maximum that is filled in
#: stays within it; an explicit one need not.
MOST_NUMBERS = 255


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
    wanted = defaults.max_cpu_sockets or chosen.sockets * defaults.max_hotplug_ratio
    return max(min(wanted, most_sockets(chosen)), chosen.sockets)


def most_sockets(chosen: Topology) -> int:
    """Return how many such sockets every node can start a guest with.

    A CPU's number, its APIC id, has bits of its own for socket, core and thread, so that a socket
    of three cores takes the numbers of four.
    """
    return MOST_NUMBERS // (_power_of_two(chosen.cores) * _power_of_two(chosen.threads))


def _power_of_two(number: int) -> int:
    """Return the smallest one that is no less."""
    return 1 << (number - 1).bit_length()
