"""Guests with CPUs of their own: what such a spec must say, in KubeVirt's words."""

from __future__ import annotations

from collections.abc import Iterator

from livevirt.kube.objects.field_error import FieldError
from livevirt.vm.spec.cpu import topology
from livevirt.vm.spec.instance import Instance
from livevirt.vm.volumes.disk_admission import wrong

_ISOLATED_ALONE = (
    "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement"
)


def placement_errors(at: str, instance: Instance) -> Iterator[FieldError]:
    """Yield what is wrong with how a domain, found `at` a path, wants its CPUs placed."""
    cpu = instance.domain.cpu
    if cpu.dedicated_cpu_placement:
        yield from _cpu_errors(at, instance)
        yield from _memory_errors(at, instance)
    elif cpu.isolate_emulator_thread:
        yield wrong(f"{at}.cpu.isolateEmulatorThread", _ISOLATED_ALONE)
    if cpu.numa is not None and cpu.numa.guest_mapping_passthrough is not None:
        yield from _numa_errors(at, instance)


def _cpu_errors(at: str, instance: Instance) -> Iterator[FieldError]:
    resources = instance.domain.resources
    asked, limit = resources.request("cpu"), resources.limit("cpu")
    vcpus = topology(instance.domain.cpu, resources).vcpus
    for side, amount in (("requests", asked), ("limits", limit)):
        here = f"{at}.resources.{side}.cpu"
        if amount is None:
            continue
        if amount.milli() % 1000:
            message = f"{here} '{amount}' must be an integer when DedicatedCPUPlacement is true"
            yield wrong(here, message)
        elif amount.value() != vcpus:
            message = (
                f"{here} '{amount}' must be equal to the number of vCPUs '{vcpus}' when"
                " DedicatedCPUPlacement is true"
            )
            yield wrong(here, message)


def _memory_errors(at: str, instance: Instance) -> Iterator[FieldError]:
    resources = instance.domain.resources
    asked, limit = resources.request("memory"), resources.limit("memory")
    if asked is not None and limit is not None and asked != limit:
        here = f"{at}.resources.limits.memory"
        message = (
            f"{here} '{limit}' must be equal to {at}.resources.requests.memory '{asked}' when"
            " DedicatedCPUPlacement is true"
        )
        yield wrong(here, message)


def _numa_errors(at: str, instance: Instance) -> Iterator[FieldError]:
    here = f"{at}.cpu.numa.guestMappingPassthrough"
    if not instance.domain.cpu.dedicated_cpu_placement:
        needed = f"{at}.cpu.dedicatedCpuPlacement must be set to true"
        yield wrong(here, f"{needed} when NUMA topology strategy is set in {here}")
    if instance.domain.memory.hugepages is None:
        needed = f"{at}.memory.hugepages must be requested"
        yield wrong(here, f"{needed} when NUMA topology strategy is set in {here}")
