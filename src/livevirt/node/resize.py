"""Whether a pod's changed resources can be granted here; the rules are a kubelet's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from livevirt.kube.control.cache import Change, Key
from livevirt.kube.objects import pod_resources, quantity
from livevirt.kube.objects.node_share import NOTHING, Share, granted
from livevirt.kube.objects.quantity import Quantity
from livevirt.kube.objects.request import Object, status_of
from livevirt.node.intent import Limits

COMPUTE = "compute"
_NAMES = ("cpu", "memory")

Amounts = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class Granted:
    """The node has room."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The node has no room: now (`Deferred`) or ever (`Infeasible`)."""

    reason: str
    message: str


def container(pod: Object) -> Object:
    """Return the container QEMU stands for."""
    containers = pod["spec"].get("containers") or [{}]
    return next((each for each in containers if each.get("name") == COMPUTE), containers[0])


def container_status(pod: Object) -> Object:
    """Return the reported status of that container, or an empty one."""
    name = container(pod).get("name")
    statuses = status_of(pod).get("containerStatuses") or ()
    return next((each for each in statuses if each.get("name") == name), {})


def desired(pod: Object) -> Object:
    return container(pod).get("resources") or {}


def in_force(pod: Object) -> Object | None:
    """Return the resources that were last reported to be in force, if any were."""
    found: Object | None = container_status(pod).get("resources")
    return found


def amounts(listed: Mapping[str, Any] | None) -> dict[str, Quantity]:
    """Read the CPU and memory of a resource list."""
    return {name: quantity.parse(listed[name]) for name in _NAMES if listed and name in listed}


def same(one: Object | None, other: Object | None) -> bool:
    """Whether two `resources` ask for the same CPU and memory."""
    return all(
        amounts((one or {}).get(field)) == amounts((other or {}).get(field))
        for field in ("requests", "limits")
    )


def asked(pod: Object) -> Amounts:
    """Return what the pod asks for, of all its containers."""
    found = pod_resources.requests(pod)
    return {name: found[name] for name in _NAMES if name in found}


def fixed(pod: Object, current: Object) -> Refused | None:
    """Return why a pod's CPUs cannot change at all, if they should and cannot."""
    before, after = amounts(current.get("requests")), amounts(desired(pod).get("requests"))
    if before.get("cpu") == after.get("cpu") or not pod_resources.exclusive_cpus(pod):
        return None
    message = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
    return Refused("Infeasible", message)


def decide(asked: Amounts, others: Amounts, allocatable: Amounts) -> Granted | Refused:
    """Return whether the requests fit beside the other pods."""
    for name, amount in asked.items():
        most = allocatable.get(name, quantity.ZERO)
        if amount > most:
            message = (
                f"Node didn't have enough capacity: {name}, requested: {_shown(name, amount)},"
                f" capacity: {_shown(name, most)}"
            )
            return Refused("Infeasible", message)
    for name, amount in asked.items():
        most, used = allocatable.get(name, quantity.ZERO), others.get(name, quantity.ZERO)
        if amount + used > most:
            message = (
                f"Node didn't have enough resource: {name}, requested: {_shown(name, amount)},"
                f" used: {_shown(name, used)}, capacity: {_shown(name, most)}"
            )
            return Refused("Deferred", message)
    return Granted()


def _shown(name: str, amount: Quantity) -> int:
    return amount.milli() if name == "cpu" else amount.value()


def limits(resources: Object | None) -> Limits:
    """Return what a cgroup must enforce."""
    asked = amounts((resources or {}).get("requests"))
    most = amounts((resources or {}).get("limits"))
    cpu = asked.get("cpu") or most.get("cpu")
    return Limits(
        cpu_request=cpu.milli() if cpu else 0,
        cpu_limit=most["cpu"].milli() if "cpu" in most else None,
        memory_limit=most["memory"].bytes if "memory" in most else None,
    )


class Grants:
    """The shares of one node's pods, as far as it has said yes to them.

    Give `note` every change of them. A grant counts from the moment it is given: a pod that asks
    before it shows in the pod's status must not be given the same room.
    """

    def __init__(self) -> None:
        self._of: dict[Key, Share] = {}
        self._total = NOTHING

    def beside(self, key: Key) -> Share:
        """Return what all pods but that one have."""
        return self._total - self._of.get(key, NOTHING)

    def grant(self, key: Key, share: Share) -> None:
        """Let a pod have so much from now on."""
        self._total = self._total - self._of.get(key, NOTHING) + share
        self._of[key] = share

    def note(self, change: Change) -> None:
        """Process a changed pod."""
        self.grant(change.key, NOTHING if change.new is None else granted(change.new))
        if change.new is None:
            del self._of[change.key]
