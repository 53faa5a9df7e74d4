"""What a pod takes of its node: what it was granted, and what it uses."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, NamedTuple, Protocol, TypeVar

from livevirt.kube.objects import pod_resources
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.quantity import ZERO, Quantity
from livevirt.kube.objects.request import Object, status_of

K = TypeVar("K", bound=Hashable)

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

    What a pod would like to grow by keeps no other pod from growing.
    """
    if status_of(pod).get("phase") in FINAL:
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
    if status_of(pod).get("phase") in FINAL:
        return ""
    return str((pod["metadata"].get("labels") or {}).get(_CREATED_BY) or "")


def pod_of(vmi: Object, pods: Iterable[Object]) -> Object | None:
    """Return the pod a guest runs in, if it is among them."""
    return next((pod for pod in pods if instance_of(pod) == vmi["metadata"]["uid"]), None)


def _as_granted(pod: Object) -> Object:
    """Return the pod as if it asked for no more than the node has granted."""
    statuses = status_of(pod).get("containerStatuses") or ()
    granted = {s["name"]: s["allocatedResources"] for s in statuses if s.get("allocatedResources")}
    containers = [
        {**each, "resources": {**(each.get("resources") or {}), "requests": granted[each["name"]]}}
        if each["name"] in granted
        else each
        for each in pod["spec"].get("containers") or ()
    ]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


class _Counted(NamedTuple):
    """How a pod was counted in."""

    node: str
    instance: str  # the uid of the one it runs, if any
    share: Share


class NodeUsage(Generic[K]):
    """What the pods of each node use of it, kept up to date change by change."""

    def __init__(self) -> None:
        self._counted: dict[K, _Counted] = {}
        self._used: dict[str, Share] = {}  # by node
        self._launchers: dict[tuple[str, str], K] = {}  # by node and instance

    def clear(self) -> None:
        """Forget all pods."""
        for memory in (self._counted, self._used, self._launchers):
            memory.clear()

    def put(self, key: K, pod: Object) -> None:
        """Count a pod in place of the one of its key."""
        self.drop(key)
        node = pod["spec"].get("nodeName")
        if not node:
            return
        counted = _Counted(node, instance_of(pod), granted(pod))
        self._counted[key] = counted
        self._used[node] = self._used.get(node, NOTHING) + counted.share
        if counted.instance:
            self._launchers[node, counted.instance] = key

    def drop(self, key: K) -> None:
        """Count a pod no longer."""
        counted = self._counted.pop(key, None)
        if counted is None:
            return
        self._used[counted.node] = self._used[counted.node] - counted.share
        launched = (counted.node, counted.instance)
        if self._launchers.get(launched) == key:
            del self._launchers[launched]

    def around(self, node: str, instance: str) -> tuple[K | None, Share]:
        """Return the key of an instance's pod on a node, and what the node's other pods use."""
        key, used = self._launchers.get((node, instance)), self._used.get(node, NOTHING)
        return key, used if key is None else used - self._counted[key].share


class Use(NamedTuple):
    """Billionths of a CPU on average over some time, and bytes of memory at its end."""

    cpu_nano: int
    memory: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What was measured at one moment; CPU is an average over the window before it."""

    at: datetime
    window: float  # seconds
    pods: Mapping[tuple[str, str], Mapping[str, Use]] = field(default_factory=dict)  # containers
    nodes: Mapping[str, Use] = field(default_factory=dict)


class UsageSource(Protocol):
    """Measures the pods of some nodes."""

    async def __call__(self) -> Usage:
        """Return what they use; it may take as long as the shortest window."""
