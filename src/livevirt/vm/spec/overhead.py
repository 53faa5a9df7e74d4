"""What a guest costs its host beyond its own memory.

QEMU is the only process there is for a guest, so KubeVirt's terms for a launcher, a monitor,
virtlogd and virtqemud do not exist here. The terms below are upper bounds of what was measured on
an idle and on a busy guest (resident memory less guest memory).
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from livevirt.vm.spec.instance import Instance

MIB = 2**20
_ROUND = 1000  # KubeVirt drops what is finer when a ratio is applied

QEMU = 96 * MIB  # code, libraries, device models, block layer caches
TRANSLATION = 256 * MIB  # TCG's cache of translated code; which node will run it is not known yet
VCPU = 8 * MIB  # each: thread stacks and per-CPU tables
IO_THREAD = 8 * MIB
GRAPHICS = 32 * MIB  # video memory and its surfaces
HOST_DEVICES = 1024 * MIB  # room to map the registers of passed-through devices
TPM = 53 * MIB
ENCRYPTION = 256 * MIB
GUARANTEED = 100 * MIB  # nobody else's memory can be borrowed when limits are exact
PAGE_TABLE_RATIO = 512  # eight bytes of page table for each page of 4096


def overhead(instance: Instance, vcpus: int, memory: int, ratio: str = "") -> int:
    """Return the bytes a pod needs on top of `memory` bytes of guest memory."""
    domain = instance.domain
    total = QEMU + TRANSLATION + VCPU * max(1, vcpus) + IO_THREAD
    total += -(-memory // PAGE_TABLE_RATIO)
    if domain.devices.autoattach_graphics_device:
        total += GRAPHICS
    if domain.devices.gpus or domain.devices.host_devices:
        total += HOST_DEVICES
    if domain.devices.tpm is not None:
        total += TPM
    if domain.launch_security is not None:
        total += ENCRYPTION
    if domain.cpu.dedicated_cpu_placement or _exact(instance):
        total += GUARANTEED
    return total + _extra(total, ratio)


def _exact(instance: Instance) -> bool:
    """Tell whether cpu and memory are limited to exactly what is asked for."""
    resources = instance.domain.resources
    if not resources.limits:
        return False
    return all(
        resources.limit(name) is not None and resources.request(name) == resources.limit(name)
        for name in ("cpu", "memory")
    )


def _extra(total: int, ratio: str) -> int:
    if not ratio:
        return 0
    try:
        factor = Decimal(ratio)
    except InvalidOperation:
        return 0  # admission of the KubeVirt object lets no such thing pass
    if factor <= 1:
        return 0
    return int(total * (factor - 1)) // _ROUND * _ROUND
