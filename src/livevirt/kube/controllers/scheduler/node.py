"""What the scheduler needs to know of a node, and what its pods take of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from livevirt.kube.controllers.scheduler.pod import NON_ZERO, Nanos, Pod
from livevirt.kube.objects import conditions
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object

_UNIT = 10**9


@dataclass(frozen=True, slots=True)
class Taint:
    """A reason to stay away from a node."""

    key: str
    value: str
    effect: str


UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
NOT_READY = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
UNREACHABLE = Taint("node.kubernetes.io/unreachable", "", "NoSchedule")


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the scheduler sees it, apart from the pods on it."""

    name: str
    labels: Mapping[str, str]
    allocatable: Nanos
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class Taken:
    """Running sums over the pods of one node."""

    __slots__ = ("pods", "requests", "weights")

    def __init__(self) -> None:
        self.pods = 0
        self.requests: Nanos = {}
        self.weights = dict.fromkeys(NON_ZERO, 0)

    def add(self, pod: Pod, sign: int = 1) -> None:
        """Count a pod in, or with -1 out."""
        self.pods += sign
        for resource, amount in pod.requests.items():
            left = self.requests.get(resource, 0) + sign * amount
            if left:
                self.requests[resource] = left
            else:
                self.requests.pop(resource, None)
        for resource in self.weights:
            self.weights[resource] += sign * pod.weight(resource)


def read(obj: Object) -> Node:
    """Return the scheduler's view of a node."""
    spec, status, meta = obj.get("spec") or {}, obj.get("status") or {}, obj["metadata"]
    taints = [
        Taint(each["key"], each.get("value") or "", each["effect"])
        for each in spec.get("taints") or ()
    ]
    # A cluster has a controller that turns a silent node into a tainted one; here nobody else does.
    missing = _readiness_taint(status)
    if missing is not None and missing not in taints:
        taints.append(missing)
    return Node(
        name=meta["name"],
        labels=meta.get("labels") or {},
        allocatable={r: parse(v).nano for r, v in (status.get("allocatable") or {}).items()},
        taints=tuple(taints),
        unschedulable=bool(spec.get("unschedulable")),
    )


def _readiness_taint(status: Object) -> Taint | None:
    ready = conditions.find(status.get("conditions"), "Ready")
    match ready and ready.get("status"):
        case "False":
            return NOT_READY
        case "Unknown":
            return UNREACHABLE
    return None


def room_for_pods(node: Node) -> int:
    """Return how many pods the node takes."""
    return node.allocatable.get("pods", 0) // _UNIT
