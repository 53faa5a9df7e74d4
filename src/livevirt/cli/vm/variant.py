"""A changed copy of an instance type or preference: pure, from the object and what shall differ."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import click

from livevirt.catalog import origin
from livevirt.cli.vm.named import INSTANCETYPES
from livevirt.kube.objects import quantity
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object

NO = "none"  # what takes a setting away
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
#: What only works with CPUs of one's own, and with huge pages.
_NEED_DEDICATED = ("isolateEmulatorThread", "numa", "realtime")
_NEED_PAGES = ("numa", "realtime")


@dataclass(frozen=True, slots=True)
class Wish:
    """What shall differ; empty and None are left as they are."""

    name: str
    namespace: str = ""
    keep_labels: bool = False
    vcpus: int = 0
    memory: str = ""
    max_sockets: int = 0
    max_guest: str = ""
    dedicated: bool | None = None
    hugepages: str = ""  # a page size, or none
    io_threads_policy: str = ""  # or none
    io_threads: int = 0
    topology: str = ""  # of a preference

    def of_instancetype(self) -> bool:
        """Tell whether something only an instance type has shall differ."""
        return self.dedicated is not None or any(
            (self.vcpus, self.memory, self.max_sockets, self.max_guest, self.hugepages,
             self.io_threads_policy, self.io_threads)
        )  # fmt: skip


def variant(source: Object, kind: Kind, wish: Wish) -> Object:
    """Return the copy, as an object of the kind; raises UsageError for what it cannot have."""
    spec: Object = copy.deepcopy(source.get("spec") or {})
    if kind in INSTANCETYPES:
        if wish.topology:
            raise click.UsageError("--cpu-topology is for preferences")
        _size(spec, wish)
        _place(spec, wish)
    else:
        if wish.of_instancetype():
            raise click.UsageError("a preference has no sizes; it takes --cpu-topology")
        if wish.topology:
            spec.setdefault("cpu", {})["preferredCPUTopology"] = wish.topology
    return {
        "apiVersion": source["apiVersion"],
        "kind": kind.kind,
        "metadata": _metadata(source["metadata"], kind, wish, spec),
        "spec": spec,
    }


def _size(spec: Object, wish: Wish) -> None:
    cpu, memory = spec.setdefault("cpu", {}), spec.setdefault("memory", {})
    if wish.vcpus:
        sockets, old = cpu.get("maxSockets") or 0, cpu.get("guest") or 0
        # Fewer sockets than vCPUs are meant for cores or threads, and 0 is no limit: those stay.
        if sockets and old <= sockets and _follows(sockets, old, wish.vcpus):
            cpu["maxSockets"] = wish.vcpus
        cpu["guest"] = wish.vcpus
    if wish.memory:
        limit, size = _amount(memory.get("maxGuest")), _amount(memory.get("guest"))
        if limit is not None and _follows(limit, size, _amount(wish.memory)):
            memory["maxGuest"] = wish.memory
        memory["guest"] = wish.memory
    if wish.max_sockets:
        cpu["maxSockets"] = wish.max_sockets
    if wish.max_guest:
        memory["maxGuest"] = wish.max_guest
        size = _amount(memory.get("guest"))
        if size is not None and quantity.parse(wish.max_guest) < size:
            raise click.UsageError(f"--max-guest {wish.max_guest} is less than its memory")


def _follows(limit: Any, old: Any, new: Any) -> bool:
    """Tell whether a limit goes with the size: it was the size, or the new one is beyond it."""
    return bool(limit == old or limit < new)


def _amount(text: Any) -> quantity.Quantity | None:
    return None if text is None else quantity.parse(str(text))


def _place(spec: Object, wish: Wish) -> None:
    cpu, memory = spec["cpu"], spec["memory"]
    if wish.dedicated is True:
        cpu["dedicatedCPUPlacement"] = True
    if wish.dedicated is False:
        _drop(cpu, "dedicatedCPUPlacement", *_NEED_DEDICATED)
    if wish.hugepages == NO:
        _drop(memory, "hugepages")
        _drop(cpu, *_NEED_PAGES)
    elif wish.hugepages:
        memory["hugepages"] = {"pageSize": wish.hugepages}
        _drop(memory, "overcommitPercent")  # huge pages are taken whole
    if wish.io_threads_policy == NO:
        _drop(spec, "ioThreadsPolicy", "ioThreads")
    elif wish.io_threads_policy:
        spec["ioThreadsPolicy"] = wish.io_threads_policy
    if wish.io_threads:
        if spec.setdefault("ioThreadsPolicy", "supplementalPool") != "supplementalPool":
            raise click.UsageError("--iothreads needs --iothreadspolicy supplementalPool")
        spec["ioThreads"] = {"supplementalPoolThreadCount": wish.io_threads}


def _drop(of: Object, *names: str) -> None:
    for name in names:
        of.pop(name, None)


def _metadata(old: Object, kind: Kind, wish: Wish, spec: Object) -> Object:
    meta: Object = {"name": wish.name}
    if kind.namespaced and wish.namespace:
        meta["namespace"] = wish.namespace
    for field in ("labels", "annotations"):
        marks = {k: v for k, v in (old.get(field) or {}).items() if k != _LAST_APPLIED}
        if not wish.keep_labels:
            marks = {k: v for k, v in marks.items() if not k.startswith(origin.PREFIX)}
        # It is no object of any bundle now, so none may replace it when it is upgraded.
        marks.pop(origin.LABEL, None)
        if marks:
            meta[field] = marks | (_resized(marks, spec) if field == "labels" else {})
    return meta


def _resized(labels: dict[str, str], spec: Object) -> dict[str, str]:
    """Return the labels that tell a size, with the size it has now."""
    sizes = {
        f"{origin.PREFIX}{name}": str(spec[name]["guest"])
        for name in ("cpu", "memory")
        if "guest" in (spec.get(name) or {})
    }
    return {key: value for key, value in sizes.items() if key in labels}
