"""Whether a pod's changed resources can be granted here. Pure; the rules are a kubelet's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from livevirt.api import quantity
from livevirt.api.quantity import Quantity
from livevirt.api.request import Object
from livevirt.node.intent import Limits

COMPUTE = "compute"
_NAMES = ("cpu", "memory")
_ENDED = ("Succeeded", "Failed")

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
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((each for each in statuses if each.get("name") == name), {})


def desired(pod: Object) -> Object:
    return container(pod).get("resources") or {}


def in_force(pod: Object) -> Object | None:
    """Return the resources that were last reported to be in force, if any were."""
    found: Object | None = container_status(pod).get("resources")
    return found


def allocated(pod: Object) -> dict[str, Quantity]:
    """Return the requests the node has granted: reported ones, or those of a new pod."""
    granted = container_status(pod).get("allocatedResources")
    if granted is None:
        granted = desired(pod).get("requests")
    return amounts(granted)


def amounts(listed: Mapping[str, Any] | None) -> dict[str, Quantity]:
    """Read the CPU and memory of a resource list."""
    return {name: quantity.parse(listed[name]) for name in _NAMES if listed and name in listed}


def same(one: Object | None, other: Object | None) -> bool:
    """Whether two `resources` ask for the same CPU and memory."""
    return all(
        amounts((one or {}).get(field)) == amounts((other or {}).get(field))
        for field in ("requests", "limits")
    )


def taken(pods: Iterable[Object], without: str) -> dict[str, Quantity]:
    """Add up what the node has granted to its pods, except the one of that uid."""
    total = dict.fromkeys(_NAMES, quantity.ZERO)
    for pod in pods:
        over = (pod.get("status") or {}).get("phase") in _ENDED
        if pod["metadata"]["uid"] == without or over:
            continue
        for name, amount in allocated(pod).items():
            total[name] = total[name] + amount
    return total


def decide(asked: Amounts, others: Amounts, allocatable: Amounts) -> Granted | Refused:
    """Say whether the requests fit beside the other pods."""
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
