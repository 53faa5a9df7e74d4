"""What a pod takes of its node, as a kubelet counts it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from livevirt.kube.objects import pod_resources
from livevirt.kube.objects.phases import FINAL
from livevirt.kube.objects.quantity import ZERO, Quantity
from livevirt.kube.objects.request import Object

_CREATED_BY = "kubevirt.io/created-by"  # the label that names a pod's instance by its uid


@dataclass(frozen=True, slots=True)
class Share:
    """An amount of what a node has."""

    cpu: Quantity = ZERO
    memory: Quantity = ZERO

    def __add__(self, other: Share) -> Share:
        return Share(self.cpu + other.cpu, self.memory + other.memory)

    def __sub__(self, other: Share) -> Share:
        return Share(self.cpu - other.cpu, self.memory - other.memory)


NOTHING = Share()


def granted(pod: Object) -> Share:
    """Return what a node has granted a pod, or all that a new one asks for.

    What a pod would like to grow by keeps nobody else from growing.
    """
    if (pod.get("status") or {}).get("phase") in FINAL:
        return NOTHING
    held = pod_resources.held_requests(_as_granted(pod))
    return Share(held.get("cpu", ZERO), held.get("memory", ZERO))


def taken(pods: Iterable[Object], own: Object | None) -> Share:
    """Return what the pods of a node take of it, all but one."""
    return sum((granted(pod) for pod in pods if pod is not own), NOTHING)


def by_node(nodes: Sequence[Object], pods: Iterable[Object]) -> list[tuple[Object, Share]]:
    """Return each node with what pods take of it."""
    found = {node["metadata"]["name"]: NOTHING for node in nodes}
    for pod in pods:
        name = pod["spec"].get("nodeName") or ""
        if name in found:
            found[name] += granted(pod)
    return [(node, found[node["metadata"]["name"]]) for node in nodes]


def instance_of(pod: Object) -> str:
    """Return the uid of the instance a pod runs, empty if it runs none."""
    if (pod.get("status") or {}).get("phase") in FINAL:
        return ""
    return str((pod["metadata"].get("labels") or {}).get(_CREATED_BY) or "")


def pod_of(vmi: Object, pods: Iterable[Object]) -> Object | None:
    """Return the pod a guest runs in, if it is among them."""
    return next((pod for pod in pods if instance_of(pod) == vmi["metadata"]["uid"]), None)


def _as_granted(pod: Object) -> Object:
    """Return the pod as if it asked for no more than the node has granted."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    told = {s["name"]: s["allocatedResources"] for s in statuses if s.get("allocatedResources")}
    containers = [
        {**each, "resources": {**(each.get("resources") or {}), "requests": told[each["name"]]}}
        if each["name"] in told
        else each
        for each in pod["spec"].get("containers") or ()
    ]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}
