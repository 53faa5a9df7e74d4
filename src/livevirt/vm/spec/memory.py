"""Guest memory: its default, and whether and how far it may grow while the guest runs."""

from __future__ import annotations

from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.vm.config.settings import Defaults
from livevirt.vm.spec.instance import Instance, read_amount

BLOCK, HUGE_BLOCK = parse("2Mi"), parse("1Gi")
#: An emulated CPU has addresses of 40 bits; QEMU needs the rest of them for other things.
MOST_EMULATED = parse("960Gi")


def guest(instance: Instance) -> Quantity | None:
    """Return the memory the guest boots with; None if nothing tells."""
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
