"""The decision: a node for a pod, or the reasons why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from livevirt.kube.controllers.scheduler.fit import Misfit, misfit, surroundings
from livevirt.kube.controllers.scheduler.fleet import Fleet
from livevirt.kube.controllers.scheduler.node import Node
from livevirt.kube.controllers.scheduler.pod import Pod
from livevirt.kube.controllers.scheduler.score import scores

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
