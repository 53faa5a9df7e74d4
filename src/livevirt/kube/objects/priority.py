"""The priority of pods: the classes every API server has, and how a class is looked up."""

from __future__ import annotations

from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Get, Reader

DEFAULT_PREEMPTION = "PreemptLowerPriority"
PREEMPTION_POLICIES = (DEFAULT_PREEMPTION, "Never")
HIGHEST_USER_VALUE = 1_000_000_000  # Kubernetes keeps what is above to itself
SYSTEM_PREFIX = "system-"


def _system_class(name: str, value: int, description: str) -> Object:
    return {
        "apiVersion": core.PRIORITY_CLASS.api_version,
        "kind": core.PRIORITY_CLASS.kind,
        "metadata": {"name": name},
        "value": value,
        "description": description,
        "preemptionPolicy": DEFAULT_PREEMPTION,
    }


#: The classes that exist in every cluster, by name.
SYSTEM_CLASSES: dict[str, Object] = {
    each["metadata"]["name"]: each
    for each in (
        _system_class("system-node-critical", 2_000_001_000, "for pods their node depends on"),
        _system_class("system-cluster-critical", 2_000_000_000, "for pods the cluster depends on"),
    )
}


def find(get: Get, name: str) -> Object | None:
    """Return the PriorityClass of a name, or None if there is none."""
    return SYSTEM_CLASSES.get(name) or get(core.PRIORITY_CLASS, name, "")


def global_default(read: Reader) -> Object | None:
    """Return the class of pods that name none: of several the one with the lowest value."""
    marked = [each for each in read.list(core.PRIORITY_CLASS) if each.get("globalDefault")]
    return min(marked, key=lambda each: int(each["value"]), default=None)
