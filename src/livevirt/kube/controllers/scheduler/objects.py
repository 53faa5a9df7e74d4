"""What the scheduler needs to know of pods and nodes, read from the objects once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from livevirt.kube.control.cache import Key, key_of
from livevirt.kube.controllers.scheduler.affinity import NONE, Affinity, affinity
from livevirt.kube.objects import conditions, pod_resources
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.request import Object, status_of

# ---------------------------------------------------------------- pods

DEFAULT_SCHEDULER = "default-scheduler"
#: A pod that asks for nothing still takes something; counted in scores only.
NON_ZERO = {"cpu": 10**8, "memory": 200 * 2**20 * 10**9}

Nanos = dict[str, int]  # amounts in billionths, as `Quantity.nano`


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint the pod does not mind; what is empty means any."""

    key: str = ""
    value: str | None = None  # None: any value
    effect: str = ""

    def tolerates(self, key: str, value: str, effect: str) -> bool:
        """Return whether the pod does not mind that taint."""
        return (
            self.effect in ("", effect)
            and self.key in ("", key)
            and (self.value is None or self.value == value)
        )


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as the scheduler sees it."""

    key: Key
    uid: str
    labels: Mapping[str, str]
    requests: Nanos  # only what is more than nothing
    node: str = ""
    node_selector: Mapping[str, str] | None = None
    affinity: Affinity = NONE
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0

    def weight(self, resource: str) -> int:
        """Return how heavy the pod is for the balance between nodes."""
        return self.requests.get(resource, NON_ZERO[resource])


def read_pod(obj: Object) -> Pod:
    """Return the scheduler's view of a pod, with all it keeps from others."""
    spec, meta = obj["spec"], obj["metadata"]
    held = pod_resources.held_requests(obj)
    own = pod_resources.exclusive_cpus(obj)
    if own:
        held[pod_resources.EXCLUSIVE_CPUS] = Quantity.from_int(own)
    return Pod(
        key=key_of(obj),
        uid=meta["uid"],
        labels=meta.get("labels") or {},
        requests={name: value.nano for name, value in held.items() if value.nano > 0},
        node=spec.get("nodeName") or "",
        node_selector=spec.get("nodeSelector") or None,
        affinity=affinity(spec.get("affinity"), meta.get("namespace", "")),
        tolerations=tuple(map(_toleration, spec.get("tolerations") or ())),
        priority=priority(obj),
    )


def _toleration(written: Mapping[str, Any]) -> Toleration:
    any_value = written.get("operator") == "Exists"
    return Toleration(
        written.get("key") or "",
        None if any_value else written.get("value") or "",
        written.get("effect") or "",
    )


def priority(obj: Object) -> int:
    """Return the priority that admission resolved for a pod."""
    return int(obj["spec"].get("priority") or 0)


def has_ended(obj: Object) -> bool:
    """Return whether the pod takes no resources any more."""
    return status_of(obj).get("phase") in FINAL


def wants_node(obj: Object) -> bool:
    """Return whether the pod waits for this scheduler to give it a node."""
    spec = obj["spec"]
    return (
        not spec.get("nodeName")
        and spec.get("schedulerName", DEFAULT_SCHEDULER) in ("", DEFAULT_SCHEDULER)
        and not spec.get("schedulingGates")
        and "deletionTimestamp" not in obj["metadata"]
        and not has_ended(obj)
    )


# ---------------------------------------------------------------- nodes

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


def read_node(obj: Object) -> Node:
    """Return the scheduler's view of a node."""
    spec, status, meta = obj.get("spec") or {}, status_of(obj), obj["metadata"]
    taints = [
        Taint(each["key"], each.get("value") or "", each["effect"])
        for each in spec.get("taints") or ()
    ]
    # A cluster has a controller that turns a silent node into a tainted one; here this code does.
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
