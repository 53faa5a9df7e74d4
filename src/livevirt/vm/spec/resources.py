"""What a launcher pod's `compute` container asks for, by KubeVirt's formulas."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from decimal import Decimal
from math import ceil

import msgspec

from livevirt.kube.objects.quantity import ZERO, Format, Quantity, parse
from livevirt.vm.config.settings import Defaults
from livevirt.vm.spec import memory
from livevirt.vm.spec.cpu import topology
from livevirt.vm.spec.instance import Instance, Resources
from livevirt.vm.spec.overhead import overhead

#: Resources a pod may name besides cpu, memory and huge pages, passed on as they are.
_PASSED_ON = ("ephemeral-storage",)


@dataclass(frozen=True, slots=True)
class Namespace:
    """What the pod's namespace demands: a quota on limits means every pod must have them."""

    limits_cpu: bool = False
    limits_memory: bool = False
    memory_ratio: Decimal = Decimal(2)  # limit over request


_UNDEMANDING = Namespace()
_VIEWS = msgspec.msgpack.Decoder(Instance)


class Compute(msgspec.Struct, frozen=True):
    """Requests and limits of the container, and the overhead in bytes that is part of them."""

    requests: dict[str, str]
    limits: dict[str, str]
    overhead: int


def compute(instance: Instance, defaults: Defaults, namespace: Namespace | None = None) -> Compute:
    """Return what the container of an instance asks for."""
    text = msgspec.msgpack.encode(instance)
    found = _computed(text, defaults, namespace or _UNDEMANDING)
    return Compute({**found.requests}, {**found.limits}, found.overhead)  # theirs to change


@functools.lru_cache(maxsize=1024)  # the guests of a cluster have few sizes, asked for all the time
def _computed(text: bytes, defaults: Defaults, around: Namespace) -> Compute:
    instance = _VIEWS.decode(text)
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    _cpu(instance, defaults, around, requests, limits)
    extra = _memory(instance, defaults, around, requests, limits)
    resources = instance.domain.resources
    for side, given in ((requests, resources.requests), (limits, resources.limits)):
        for name in _PASSED_ON:
            if name in given:
                side[name] = parse(given[name])
    return Compute(_written(requests), _written(limits), extra)


def _cpu(
    instance: Instance,
    defaults: Defaults,
    around: Namespace,
    requests: dict[str, Quantity],
    limits: dict[str, Quantity],
) -> None:
    cpu, resources = instance.domain.cpu, instance.domain.resources
    threads = topology(cpu, resources).vcpus + instance.supplemental_threads
    if cpu.dedicated_cpu_placement:
        whole = Quantity.from_int(threads + (1 if cpu.isolate_emulator_thread else 0))
        requests["cpu"] = limits["cpu"] = whole
        return
    share = Quantity.from_milli(threads * 1000 // defaults.cpu_allocation_ratio)
    limit = resources.limit("cpu")
    if limit:
        share = min(share, limit)  # a pod must not ask for more than it may have
    requests["cpu"] = resources.request("cpu") or share
    if limit is None and around.limits_cpu:
        limit = Quantity.from_int(threads)
    if limit is not None:
        limits["cpu"] = limit


def _memory(
    instance: Instance,
    defaults: Defaults,
    around: Namespace,
    requests: dict[str, Quantity],
    limits: dict[str, Quantity],
) -> int:
    resources, cpu = instance.domain.resources, instance.domain.cpu
    guest = memory.guest(instance) or ZERO
    asked, limit = _memory_for(guest, resources)
    base = asked or limit or _bytes(guest.bytes * 100 // defaults.memory_overcommit)
    if cpu.dedicated_cpu_placement:
        limit = base = max(base, guest) if asked else base
    vcpus = topology(cpu, resources).vcpus
    ratio = defaults.additional_guest_memory_overhead_ratio
    extra = overhead(instance, vcpus, guest.bytes, ratio)
    added = ZERO if resources.overcommit_guest_overhead else _bytes(extra)
    page = instance.page
    if page is not None:
        # A page there is not cannot be overcommitted: the guest has all of its memory in pages.
        in_pages = guest or base
        requests[f"hugepages-{page}"] = limits[f"hugepages-{page}"] = in_pages
        base = max(base - in_pages, ZERO)
    requests["memory"] = base + added
    if limit is not None:
        limits["memory"] = (base if page is not None else limit) + _bytes(extra)
    elif around.limits_memory:
        limits["memory"] = _bytes(ceil(requests["memory"].bytes * around.memory_ratio))
    return extra


def _memory_for(guest: Quantity, resources: Resources) -> tuple[Quantity | None, Quantity | None]:
    """Return the request and limit that the owner wrote, for a guest that may have grown since.

    A limit below the guest would end it, and a request that was all of the limit stays so.
    """
    asked, limit = resources.request("memory"), resources.limit("memory")
    if limit is None or guest <= limit:
        return asked, limit
    return guest if asked == limit else asked, guest


def _bytes(number: int) -> Quantity:
    return Quantity.from_int(number, Format.BINARY_SI)


def _written(amounts: dict[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
