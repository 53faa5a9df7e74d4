"""The decision: the best node for a pod, or the reasons why there is none. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from livevirt.kube.controllers.scheduler.fit import Misfit, misfit, surroundings, tolerates
from livevirt.kube.controllers.scheduler.fleet import Fleet
from livevirt.kube.controllers.scheduler.objects import NON_ZERO, Node, Pod

NO_NODES = "no nodes available to schedule pods"


@dataclass(frozen=True, slots=True)
class Place:
    """Bind the pod to this node."""

    node: str


@dataclass(frozen=True, slots=True)
class Wait:
    """No node will do."""

    message: str


def plan(pod: Pod, fleet: Fleet) -> Place | Wait:
    """Return the best node that will do; of equally good ones the first by name."""
    if not fleet.nodes:
        return Wait(NO_NODES)
    around = surroundings(pod, fleet)
    fitting: list[Node] = []
    misfits: list[Misfit] = []
    for node in fleet.nodes.values():
        wrong = misfit(pod, node, fleet, around)
        if wrong is None:
            fitting.append(node)
        else:
            misfits.append(wrong)
    if not fitting:
        return Wait(message(misfits))
    rated = zip(scores(pod, fitting, fleet), fitting, strict=True)
    _, best = min(rated, key=lambda each: (-each[0], each[1].name))
    return Place(best.name)


def message(misfits: list[Misfit]) -> str:
    """Return kube-scheduler's sentence; people and tools know it by heart."""
    reasons = Counter(reason for each in misfits for reason in each.reasons)
    curable = sum(each.curable for each in misfits)
    evictions = {
        # Nothing is ever evicted to make room here.
        "No preemption victims found for incoming pod": curable,
        "Preemption is not helpful for scheduling": len(misfits) - curable,
    }
    head = f"0/{len(misfits)} nodes are available:"
    return f"{head} {_counted(reasons)}. preemption: {head} {_counted(evictions)}."


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items() if count))


# ---------------------------------------------------------------- scores

FULL = 100.0
# kube-scheduler's own weights.
_RESOURCES, _BALANCE, _NODES, _PODS, _TAINTS = 1, 1, 2, 2, 3


def scores(pod: Pod, nodes: Sequence[Node], fleet: Fleet) -> list[float]:
    """Return a score for each node that will do."""
    parts = (
        (_RESOURCES, [_least_allocated(pod, node, fleet) for node in nodes]),
        (_BALANCE, [_balanced(pod, node, fleet) for node in nodes]),
        (_NODES, _normalised([_preference(pod, node) for node in nodes])),
        (_PODS, _spread(_company(pod, nodes, fleet))),
        (_TAINTS, _reversed(_normalised([_minded(pod, node) for node in nodes]))),
    )
    return [sum(weight * part[at] for weight, part in parts) for at in range(len(nodes))]


def _shares(pod: Pod, node: Node, fleet: Fleet) -> list[float]:
    """Return how full the node would be, of each resource."""
    weights = fleet.taken(node.name).weights
    return [
        min((weights[r] + pod.weight(r)) / node.allocatable[r], 1.0)
        for r in NON_ZERO
        if node.allocatable.get(r)
    ]


def _least_allocated(pod: Pod, node: Node, fleet: Fleet) -> float:
    shares = _shares(pod, node, fleet)
    return FULL * sum(1 - share for share in shares) / len(shares) if shares else 0.0


def _balanced(pod: Pod, node: Node, fleet: Fleet) -> float:
    shares = _shares(pod, node, fleet)
    return FULL * (1 - (max(shares) - min(shares)) / 2) if shares else 0.0


def _preference(pod: Pod, node: Node) -> float:
    return float(
        sum(w for w, term in pod.affinity.preferred_nodes if term.matches(node.name, node.labels))
    )


def _minded(pod: Pod, node: Node) -> float:
    """Count the taints that only ask pods to stay away."""
    return float(sum(t.effect == "PreferNoSchedule" and not tolerates(pod, t) for t in node.taints))


def _company(pod: Pod, nodes: Sequence[Node], fleet: Fleet) -> list[float]:
    totals = [0.0] * len(nodes)
    terms = [(weight, term) for weight, term in pod.affinity.preferred_near]
    terms += [(-weight, term) for weight, term in pod.affinity.preferred_apart]
    for weight, term in terms:
        counts = fleet.places(term.topology_key, fleet.chosen(term))
        for at, node in enumerate(nodes):
            place = node.labels.get(term.topology_key)
            if place is not None:
                totals[at] += weight * counts[place]
    return totals


def _normalised(values: list[float]) -> list[float]:
    """Stretch the values so that the largest is full."""
    most = max(values, default=0.0)
    return [FULL * value / most for value in values] if most > 0 else [0.0] * len(values)


def _reversed(values: list[float]) -> list[float]:
    return [FULL - value for value in values]


def _spread(values: list[float]) -> list[float]:
    """Stretch the values, which may be negative, between nothing and full."""
    least, most = min(values, default=0.0), max(values, default=0.0)
    if most == least:
        return [0.0] * len(values)
    return [FULL * (value - least) / (most - least) for value in values]
