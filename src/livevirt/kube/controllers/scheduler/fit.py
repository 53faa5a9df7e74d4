"""Which nodes fit a pod, and kube-scheduler's messages on what is wrong with the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from livevirt.kube.controllers.scheduler.affinity import PodTerm
from livevirt.kube.controllers.scheduler.fleet import Fleet
from livevirt.kube.controllers.scheduler.objects import (
    UNSCHEDULABLE,
    Node,
    Pod,
    Taint,
    room_for_pods,
)
from livevirt.kube.objects.pod_resources import EXCLUSIVE_CPUS

_FORBIDDING = ("NoSchedule", "NoExecute")
_SHOWN = {EXCLUSIVE_CPUS: "cpu"}  # who wants a CPU alone wants a CPU


class Misfit(NamedTuple):
    """Why a node will not do; `curable` if it would, were there fewer pods on it."""

    reasons: tuple[str, ...]
    curable: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the pods that have a node mean for one that has none; the same for every node."""

    near: tuple[tuple[PodTerm, Counter[str]], ...]  # each with its count by topology value
    apart: tuple[tuple[PodTerm, Counter[str]], ...]
    kept_away: frozenset[tuple[str, str]]
    first: bool  # no pod matches its term yet, and the pod itself would


def surroundings(pod: Pod, fleet: Fleet) -> Surroundings:
    """Return what a pod's decision needs to know of all other pods."""
    near = tuple((t, fleet.places(t.topology_key, fleet.chosen(t))) for t in pod.affinity.near)
    apart = tuple((t, fleet.places(t.topology_key, fleet.chosen(t))) for t in pod.affinity.apart)
    first = not any(counts for _, counts in near) and all(
        fleet.matches(term, pod) for term, _ in near
    )
    return Surroundings(near, apart, frozenset(fleet.kept_away(pod)), first)


def misfit(pod: Pod, node: Node, fleet: Fleet, around: Surroundings) -> Misfit | None:
    """Return what is wrong with a node, or None if it will do; the first kind of wrong counts."""
    return (
        _closed(pod, node)
        or _other_name(pod, node)
        or _tainted(pod, node)
        or _not_chosen(pod, node)
        or _full(pod, node, fleet)
        or _bad_company(node, around)
    )


def tolerates(pod: Pod, taint: Taint) -> bool:
    """Return whether a pod does not mind a taint."""
    return any(each.tolerates(taint.key, taint.value, taint.effect) for each in pod.tolerations)


def _closed(pod: Pod, node: Node) -> Misfit | None:
    if node.unschedulable and not tolerates(pod, UNSCHEDULABLE):
        return Misfit(("node(s) were unschedulable",))
    return None


def _other_name(pod: Pod, node: Node) -> Misfit | None:
    if pod.node and pod.node != node.name:
        return Misfit(("node(s) didn't match the requested node name",))
    return None


def _tainted(pod: Pod, node: Node) -> Misfit | None:
    for taint in node.taints:
        if taint.effect in _FORBIDDING and not tolerates(pod, taint):
            return Misfit((f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}",))
    return None


def _not_chosen(pod: Pod, node: Node) -> Misfit | None:
    wanted, terms = pod.node_selector or {}, pod.affinity.nodes
    if all(node.labels.get(key) == value for key, value in wanted.items()) and (
        terms is None or any(term.matches(node.name, node.labels) for term in terms)
    ):
        return None
    return Misfit(("node(s) didn't match Pod's node affinity/selector",))


def _full(pod: Pod, node: Node, fleet: Fleet) -> Misfit | None:
    taken = fleet.taken(node.name)
    reasons = ["Too many pods"] if taken.pods + 1 > room_for_pods(node) else []
    curable = True
    for resource, amount in pod.requests.items():
        has = node.allocatable.get(resource, 0)
        if amount > has - taken.requests.get(resource, 0):
            reasons.append(f"Insufficient {_SHOWN.get(resource, resource)}")
            curable = curable and amount <= has
    return Misfit(tuple(dict.fromkeys(reasons)), curable) if reasons else None


def _bad_company(node: Node, around: Surroundings) -> Misfit | None:
    for term, counts in around.near:
        place = node.labels.get(term.topology_key)
        if place is None or (not around.first and place not in counts):
            return Misfit(("node(s) didn't match pod affinity rules",))
    for term, counts in around.apart:
        if node.labels.get(term.topology_key) in counts:
            return Misfit(("node(s) didn't match pod anti-affinity rules",), curable=True)
    if any(node.labels.get(key) == value for key, value in around.kept_away):
        reason = "node(s) didn't satisfy existing pods anti-affinity rules"
        return Misfit((reason,), curable=True)
    return None
