"""What an instance type puts into a template it does not conflict with."""

from __future__ import annotations

import struct

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules import topology
from livevirt.vm.instancetypes.rules.conflicts import CPU, MEMORY, TOPOLOGY, cpu_settings
from livevirt.vm.instancetypes.rules.topology import Undivided, Wish

_TYPE_VCPUS = "instancetype.spec.cpu.guest"  # the field KubeVirt names for those of the type


def apply(spec: Object, instancetype: Object) -> None:
    """Put what an instance type says into a spec, in place; vCPUs are left to `set_topology`."""
    domain = spec["domain"]
    for name in ("nodeSelector", "schedulerName"):
        if instancetype.get(name):
            spec[name] = instancetype[name]
    _apply_cpu(domain, instancetype.get("cpu") or {})
    _apply_memory(domain, instancetype.get("memory") or {})
    for name in ("ioThreadsPolicy", "launchSecurity"):
        if instancetype.get(name) is not None:
            domain[name] = instancetype[name]
    if instancetype.get("ioThreads") is not None:
        domain["ioThreads"] = {**(domain.get("ioThreads") or {}), **instancetype["ioThreads"]}
    for name in ("gpus", "hostDevices"):
        if instancetype.get(name):
            # Copied, because preferences fill in what they leave open.
            domain["devices"][name] = [dict(device) for device in instancetype[name]]


def exclusive_errors(spec: Object) -> list[FieldError]:
    """List topology that a template gives beside a number of vCPUs."""
    cpu = (spec.get("domain") or {}).get("cpu") or {}
    guest = cpu.get("guest")
    if guest is None:
        return []
    found = [
        FieldError(
            f"{CPU}.guest",
            "FieldValueInvalid",
            f"{CPU}.guest and {CPU}.{name} are mutually exclusive",
        )
        for name in TOPOLOGY
        if cpu.get(name)
    ]
    if guest < 1:
        message = f"{CPU}.guest '{guest}': must be greater than 0"
        found.append(FieldError(f"{CPU}.guest", "FieldValueInvalid", message))
    return found


def missing_errors(spec: Object, instancetype: Object, name: str) -> list[FieldError]:
    """List the sizes that neither the instance type nor the template gives.

    Asked before anything is defaulted: a guest would start with one CPU and a huge page of memory.
    """
    found = []
    domain = spec.get("domain") or {}
    for part, what, path in (("cpu", "vCPUs", CPU), ("memory", "memory", MEMORY)):
        owned, given = instancetype.get(part) or {}, domain.get(part) or {}
        if owned.get("guest") is None and given.get("guest") is None:
            message = f"instance type {name} does not provide {what}, {path}.guest is required"
            found.append(FieldError(f"{path}.guest", "FieldValueRequired", message))
    return found


def set_topology(spec: Object, instancetype: Object | None, wanted: Wish) -> list[FieldError]:
    """Turn a number of vCPUs into a topology, in place; list why it cannot be."""
    cpu = spec["domain"].get("cpu") or {}
    owned = ((instancetype or {}).get("cpu") or {}).get("guest")
    vcpus = owned if owned is not None else cpu.get("guest")
    if vcpus is None:
        return []
    try:
        chosen = topology.spread(vcpus, wanted)
    except Undivided as error:
        field, whose = (
            (_TYPE_VCPUS, "the instance type")
            if owned is not None
            else (f"{CPU}.guest", "the VirtualMachine")
        )
        message = f"{vcpus} vCPUs provided by {whose} {error}"
        return [FieldError(field, "FieldValueInvalid", message)]
    cpu.pop("guest", None)
    cpu.update(sockets=chosen.sockets, cores=chosen.cores, threads=chosen.threads)
    spec["domain"]["cpu"] = cpu
    return []


def _apply_cpu(domain: Object, owned: Object) -> None:
    if settings := cpu_settings(owned):
        domain["cpu"] = {**(domain.get("cpu") or {}), **settings}


def _apply_memory(domain: Object, owned: Object) -> None:
    memory = domain.get("memory") or {}
    for name in ("guest", "hugepages", "maxGuest"):
        if owned.get(name) is not None:
            memory[name] = owned[name]
    if memory:
        domain["memory"] = memory
    percent = owned.get("overcommitPercent") or 0
    if percent > 0 and memory.get("guest") is not None:
        resources = domain["resources"] = {**(domain.get("resources") or {})}
        amount = str(overcommitted(parse(memory["guest"]), percent))
        resources["requests"] = {**(resources.get("requests") or {}), "memory": amount}


def overcommitted(guest: Quantity, percent: int) -> Quantity:
    """Return what is asked of the node for so much memory less a percentage.

    KubeVirt computes it in single precision; so do we, to the byte, or a pod would differ.
    """
    share = _single(1 - _single(_single(float(percent)) / 100))
    return Quantity.from_int(int(_single(_single(float(guest.value())) * share)), guest.format)


def _single(number: float) -> float:
    """Return the nearest number of single precision."""
    found: float = struct.unpack("f", struct.pack("f", number))[0]
    return found
