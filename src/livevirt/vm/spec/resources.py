"""What a launcher pod's `compute` container requests, by KubeVirt's formulas."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from math import ceil

import msgspec

from livevirt.kube.objects.quantity import ZERO, Format, Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.selector import SelectorError, label_selector
from livevirt.vm.config.settings import Defaults
from livevirt.vm.spec import sizes
from livevirt.vm.spec.instance import Instance, Resources
from livevirt.vm.spec.sizes import topology

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
GUARANTEED = 100 * MIB  # no other pod's memory can be borrowed when limits are exact
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
    """Return whether cpu and memory are limited to exactly what is asked for."""
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


MEMORY_RATIO = "alpha.kubevirt.io/auto-memory-limits-ratio"  # a label of the namespace
#: The annotation of a pod that names the limits its namespace demanded when it was made.
DEMANDED = "livevirt.io/demanded-limits"
_USUAL_RATIO = Decimal(2)


def namespace_of(
    quotas: Iterable[Object], namespace: Object | None, kubevirt: Object | None
) -> Namespace:
    """Return what a namespace with these quotas and labels demands, by the cluster's settings."""
    hard = {name for quota in quotas for name in (quota.get("spec") or {}).get("hard") or ()}
    labels = ((namespace or {}).get("metadata") or {}).get("labels") or {}
    return Namespace(
        limits_cpu="limits.cpu" in hard or _limited(labels, kubevirt),
        limits_memory="limits.memory" in hard,
        memory_ratio=_ratio(labels.get(MEMORY_RATIO, "")),
    )


def demanded(namespace: Namespace) -> dict[str, str]:
    """Return the annotation of a new pod, nothing if no limits are demanded of it."""
    asked = {"cpu": namespace.limits_cpu, "memory": namespace.limits_memory}
    names = ",".join(name for name, there in asked.items() if there)
    return {DEMANDED: names} if names else {}


def as_started(namespace: Namespace, pod: Object | None) -> Namespace:
    """Return what a namespace demands of a pod that is there.

    The limits it was made with stay, and must go on following the guest's size, also when the
    namespace no longer demands them.
    """
    if pod is None:
        return namespace
    names = (pod["metadata"].get("annotations") or {}).get(DEMANDED, "").split(",")
    return replace(
        namespace,
        limits_cpu=namespace.limits_cpu or "cpu" in names,
        limits_memory=namespace.limits_memory or "memory" in names,
    )


def _limited(labels: dict[str, str], kubevirt: Object | None) -> bool:
    """Return whether the cluster gives guests of namespaces with such labels a CPU limit."""
    settings = ((kubevirt or {}).get("spec") or {}).get("configuration") or {}
    try:
        return label_selector(settings.get("autoCPULimitNamespaceLabelSelector")).matches(labels)
    except SelectorError:
        return False  # it selects nothing that could be named


def _ratio(text: str) -> Decimal:
    try:
        ratio = Decimal(text or _USUAL_RATIO)
    except InvalidOperation:
        return _USUAL_RATIO
    return ratio if ratio.is_finite() and ratio >= 1 else _USUAL_RATIO


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
    guest = sizes.guest(instance) or ZERO
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
