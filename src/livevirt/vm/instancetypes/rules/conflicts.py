"""Conflicts: fields that both a VM and its instance type set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.request import Object
from livevirt.vm.verdict.comparison import TEMPLATE

ANNOTATIONS = "spec.template.metadata.annotations"
CPU, MEMORY = f"{TEMPLATE}.domain.cpu", f"{TEMPLATE}.domain.memory"
TOPOLOGY = ("sockets", "cores", "threads")

#: Settings of the CPU: what the instance type calls it, and what the VM does.
_CPU_SETTINGS = (
    ("model", "model"),
    ("dedicatedCPUPlacement", "dedicatedCpuPlacement"),
    ("isolateEmulatorThread", "isolateEmulatorThread"),
    ("numa", "numa"),
    ("realtime", "realtime"),
    ("maxSockets", "maxSockets"),
)
MEMORY_SETTINGS = ("guest", "hugepages", "maxGuest")
_NOTHING: tuple[Any, ...] = (None, 0, "", False)  # the values of a plain field that is not set


def conflicts(template: Object, instancetype: Object) -> list[str]:
    """List the fields of a template, by their paths in the VM, that its instance type owns.

    All of them, so that a person can put them right at once.
    """
    spec = template.get("spec") or {}
    domain = spec.get("domain") or {}
    found = [*_placement(spec, instancetype)]
    if domain.get("cpu") or domain.get("memory") or domain.get("resources"):
        found += _cpu(domain, instancetype.get("cpu") or {})
        found += _memory(domain, instancetype.get("memory") or {})
    return [*found, *_domain(domain, instancetype), *_annotations(template, instancetype)]


def cpu_settings(owned: Object) -> Object:
    """Return what the `cpu` of an instance type sets beside vCPUs, under the VM's names."""
    return {
        theirs: owned[ours]
        for ours, theirs in _CPU_SETTINGS
        if owned.get(ours) is not None and (owned[ours] or ours != "maxSockets")  # 0: no ceiling
    }


def conflict_error(path: str) -> FieldError:
    """Return the message on a conflict."""
    message = f"VM field(s) {path} conflicts with selected instance type"
    return FieldError(path, "FieldValueInvalid", message)


def _placement(spec: Object, instancetype: Object) -> Iterator[str]:
    if instancetype.get("nodeSelector") is not None and spec.get("nodeSelector") is not None:
        yield f"{TEMPLATE}.nodeSelector"
    if instancetype.get("schedulerName") and spec.get("schedulerName"):
        yield f"{TEMPLATE}.schedulerName"


def _cpu(domain: Object, owned: Object) -> Iterator[str]:
    cpu = domain.get("cpu") or {}
    yield from _resources(domain, "cpu")
    for name in TOPOLOGY:  # also where the VM sets the number: `guest` is the one way to do so
        if cpu.get(name):
            yield f"{CPU}.{name}"
    if owned.get("guest") is not None and cpu.get("guest") is not None:
        yield f"{CPU}.guest"
    for name in cpu_settings(owned):
        if cpu.get(name) not in _NOTHING:
            yield f"{CPU}.{name}"


def _memory(domain: Object, owned: Object) -> Iterator[str]:
    memory = domain.get("memory") or {}
    for name in MEMORY_SETTINGS:
        if owned.get(name) is not None and memory.get(name) is not None:
            yield f"{MEMORY}.{name}"
    yield from _resources(domain, "memory")


def _resources(domain: Object, name: str) -> Iterator[str]:
    resources = domain.get("resources") or {}
    for side in ("requests", "limits"):
        if name in (resources.get(side) or {}):
            yield f"{TEMPLATE}.domain.resources.{side}.{name}"


def _domain(domain: Object, instancetype: Object) -> Iterator[str]:
    at, threads = f"{TEMPLATE}.domain", "supplementalPoolThreadCount"
    wanted, given = instancetype.get("ioThreads") or {}, domain.get("ioThreads") or {}
    if wanted.get(threads) is not None and given.get(threads) is not None:
        yield f"{at}.ioThreads.{threads}"
    for name in ("ioThreadsPolicy", "launchSecurity"):
        if instancetype.get(name) is not None and domain.get(name) is not None:
            yield f"{at}.{name}"
    devices = domain.get("devices") or {}
    for name in ("gpus", "hostDevices"):
        if instancetype.get(name) and devices.get(name):
            yield f"{at}.devices.{name}"


def _annotations(template: Object, instancetype: Object) -> Iterator[str]:
    given = (template.get("metadata") or {}).get("annotations") or {}
    for key, value in (instancetype.get("annotations") or {}).items():
        if given.get(key, value) != value:
            yield f"{ANNOTATIONS}.{key}"
