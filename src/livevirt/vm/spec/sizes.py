"""CPU topology and memory of a guest: defaults, and how far each may grow while it runs."""

from __future__ import annotations

import msgspec

from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.vm.config.settings import Defaults
from livevirt.vm.spec.instance import Cpu, Instance, Resources, read_amount

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


BLOCK, HUGE_BLOCK = parse("2Mi"), parse("1Gi")
#: An emulated CPU has addresses of 40 bits; QEMU needs the rest of them for other things.
MOST_EMULATED = parse("960Gi")


def guest(instance: Instance) -> Quantity | None:
    """Return the memory the guest boots with; None if it is not set."""
    resources = instance.domain.resources
    return (
        instance.guest or resources.request("memory") or resources.limit("memory") or instance.page
    )


def max_guest(instance: Instance, boot: Quantity | None, defaults: Defaults) -> Quantity | None:
    """Return how far the memory may grow; None keeps it as it boots."""
    if instance.max_guest is not None:
        return instance.max_guest
    if boot is None:
        return None
    most = read_amount(defaults.max_guest) or boot * defaults.max_hotplug_ratio
    return None if hotplug_problem(instance, boot, most) else most


def hotplug_problem(instance: Instance, boot: Quantity | None, most: Quantity | None) -> str:
    """Return why memory cannot be plugged into such a guest, or nothing if it can.

    There is no smallest size: KubeVirt refuses guests under 1Gi, which run well all the same.
    """
    cpu = instance.domain.cpu
    if cpu.realtime is not None:
        return "Memory hotplug is not compatible with realtime VMs"
    if cpu.numa is not None and cpu.numa.guest_mapping_passthrough is not None:
        return "Memory hotplug is not compatible with guest mapping passthrough"
    if instance.domain.launch_security is not None:
        return "Memory hotplug is not compatible with encrypted VMs"
    if boot is None:
        return "Guest memory must be configured when memory hotplug is enabled"
    if most is None:
        return "Max guest memory must be configured when memory hotplug is enabled"
    if boot > most:
        return "Guest memory is greater than the configured maxGuest memory"
    block = HUGE_BLOCK if instance.page == HUGE_BLOCK else BLOCK
    if boot.nano % block.nano:
        return f"Guest memory must be {block} aligned"
    if most.nano % block.nano:
        return f"MaxGuest must be {block} aligned"
    if instance.architecture not in ("", "amd64"):
        return "Memory hotplug is only available for x86_64 VMs"
    return ""
