"""What a pod must hold while its guest goes from the size it has to the size it should have."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from livevirt.kube.objects.quantity import Format, Quantity, parse
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.config import settings
from livevirt.vm.config.settings import Defaults
from livevirt.vm.spec import instance, sizes
from livevirt.vm.spec.instance import Amount, Instance, Resources
from livevirt.vm.spec.resources import Compute, Namespace, compute
from livevirt.vm.spec.sizes import topology

_RESIZED = ("cpu", "memory")  # all that a pod's resize can change
_PAGES = "hugepages-"
_REPORTED = ("guestCurrent", "guestPlugged", "guestRequested")  # of the status, in bytes


class Size(msgspec.Struct, frozen=True):
    """What live changes change: CPU sockets, and memory in bytes."""

    sockets: int
    memory: int

    def largest(self, other: Size) -> Size:
        """Return the size that holds both."""
        return Size(max(self.sockets, other.sockets), max(self.memory, other.memory))

    def smallest(self, other: Size) -> Size:
        """Return the size that both hold."""
        return Size(min(self.sockets, other.sockets), min(self.memory, other.memory))


def asked(vmi: Object) -> Size:
    """Return the size an instance should have."""
    return size_of(instance.read(vmi["spec"]))


def reported_size(vmi: Object) -> Size:
    """Return the size an instance's status reports: what is plugged in, or offered to the guest.

    What is not reported yet is as asked for.
    """
    status = status_of(vmi)
    sockets = (status.get("currentCPUTopology") or {}).get("sockets")
    memory = status.get("memory") or {}
    reported = {name: parse(memory[name]).bytes for name in _REPORTED if name in memory}
    if "guestPlugged" in reported:
        ballooned = parse(memory.get("guestBallooned", 0)).bytes
        reported["guestPlugged"] -= ballooned
    amounts = reported.values()
    if sockets and amounts:
        return Size(sockets, max(amounts))
    wanted = asked(vmi)
    return Size(sockets or wanted.sockets, max(amounts, default=wanted.memory))


def reservation(vmi: Object, has: Size, namespace: Namespace | None = None) -> Compute:
    """Return what the pod must hold while the guest goes from `has` to what is asked for.

    Growing takes its room first and shrinking gives it back last, so it is the larger of both.
    """
    return reserved(instance.read(vmi["spec"]), has, settings.recorded(vmi), namespace)


def reserved(
    view: Instance, has: Size, defaults: Defaults, namespace: Namespace | None = None
) -> Compute:
    """Return the same for an instance that is read already."""
    now = size_of(view)
    ratio = defaults.cpu_allocation_ratio
    return compute(_grown(view, now, now.largest(has), ratio), defaults, namespace)


def held(vmi: Object, has: Size, namespace: Namespace | None = None) -> Compute:
    """Return what the pod of a guest of just that size must hold."""
    view, defaults = instance.read(vmi["spec"]), settings.recorded(vmi)
    ratio = defaults.cpu_allocation_ratio
    return compute(_grown(view, size_of(view), has, ratio), defaults, namespace)


def resized(current: Object, needed: Compute, own_limits: Collection[str] = ()) -> Object:
    """Return a container's resources as a resize may change them, the rest as it is.

    Limits change only where there are some, or where the owner sets them (`own_limits`).
    """
    found: Object = {}
    for side, amounts in (("requests", needed.requests), ("limits", needed.limits)):
        old = current.get(side) or {}
        added = own_limits if side == "limits" else ()
        new = {
            n: amounts[n]
            for n in _RESIZED
            if n in amounts and (_new(old, n, amounts) if n in old else n in added)
        }
        if old or new:
            found[side] = {**old, **new}
    return found


def qos_class(resources: Object) -> str:
    """Return the QoS class of a pod whose container has such resources."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if not any(name in side for side in (requests, limits) for name in _RESIZED):
        return "BestEffort"
    exact = all(
        name in limits and parse(requests.get(name, limits[name])) == parse(limits[name])
        for name in _RESIZED
    )
    return "Guaranteed" if exact else "Burstable"


def covers(in_force: Object, needed: Compute) -> bool:
    """Return whether a container's resources in force are enough.

    Requests show it: a resize changes them and the limits in one step.
    """
    requests = in_force.get("requests") or {}
    return all(
        name in requests and parse(requests[name]) >= parse(needed.requests[name])
        for name in needed.requests
        if name in _RESIZED or name.startswith(_PAGES)
    )


def _new(old: Mapping[str, Amount], name: str, amounts: Mapping[str, str]) -> bool:
    """Return whether an amount differs in value, not only in notation."""
    return parse(old[name]) != parse(amounts[name])


def size_of(view: Instance) -> Size:
    """Return the size that an instance asks for."""
    size = sizes.guest(view)
    return Size(topology(view.domain.cpu, view.domain.resources).sockets, size.bytes if size else 0)


def _grown(view: Instance, now: Size, size: Size, ratio: int) -> Instance:
    """Return an instance of one size as it would be at another, its requests and limits with it."""
    if size == now:
        return view
    domain = view.domain
    chosen = topology(domain.cpu, domain.resources)
    cpu = (size.sockets - now.sockets) * chosen.cores * chosen.threads * (1000 // ratio)
    resources = _moved(domain.resources, cpu, now.memory, size.memory)
    changed = replace(
        domain,
        cpu=replace(domain.cpu, sockets=size.sockets, cores=chosen.cores, threads=chosen.threads),
        memory=replace(domain.memory, guest=size.memory),
        resources=resources,
    )
    return replace(view, domain=changed)


def _moved(resources: Resources, cpu: int, size: int, other: int) -> Resources:
    """Return what the owner asks for, moved by so many millicores and to another size of memory."""
    sides = {}
    for side in ("requests", "limits"):
        given: Mapping[str, Amount] = getattr(resources, side)
        moved: dict[str, Amount] = dict(given)
        if "cpu" in given:
            moved["cpu"] = str(Quantity.from_milli(parse(given["cpu"]).milli() + cpu))
        if "memory" in given:
            amount = parse(given["memory"]).bytes
            # An overcommitted request is a part of the size, and of a smaller one no less a part.
            least = amount * other // size if other < size else 0
            more = Quantity.from_int(max(amount + other - size, least), Format.BINARY_SI)
            moved["memory"] = str(more)
        sides[side] = moved
    return replace(resources, **sides)
