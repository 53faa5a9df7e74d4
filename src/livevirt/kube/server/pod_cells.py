"""The status of a pod in one term that `kubectl get pods` shows.

The rules are Kubernetes' own: a waiting or ended container's reason goes before the pod's phase,
init containers go before the others, and a pod that is being deleted is Terminating.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from livevirt.kube.objects.conditions import FINAL

Object = dict[str, Any]


@dataclass(slots=True)
class Summary:
    """What the columns of a pod are made of."""

    reason: str
    total: int
    ready: int = 0
    restarts: int = 0
    restarted_at: str = ""  # RFC 3339; empty if no container ended yet

    def count(self, container: Object) -> None:
        """Add the restarts of a container and remember when it last ended."""
        self.restarts += container.get("restartCount") or 0
        ended = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
        self.restarted_at = max(self.restarted_at, ended or "")  # one format: text order is time


def summarize(pod: Object) -> Summary:
    """Return readiness, status and restarts of a pod."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    conditions = status.get("conditions") or []
    sidecars = {
        c["name"] for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"
    }
    summary = Summary(
        reason=status.get("reason") or status.get("phase") or "",
        total=len(spec.get("containers") or []) + len(sidecars),
    )
    if any(
        c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated" for c in conditions
    ):
        summary.reason = "SchedulingGated"

    blocked = _initialize(summary, spec, status, sidecars)
    if not blocked or _is_true(conditions, "Initialized"):
        summary.restarts, summary.restarted_at = 0, ""
        for container in status.get("initContainerStatuses") or []:
            if container.get("name") in sidecars:
                summary.count(container)
        _run(summary, status, _is_true(conditions, "Ready"))

    if "deletionTimestamp" in (pod.get("metadata") or {}):
        if status.get("reason") == "NodeLost":
            summary.reason = "Unknown"
        elif status.get("phase") not in FINAL:
            summary.reason = "Terminating"
    return summary


def _initialize(summary: Summary, spec: Object, status: Object, sidecars: Iterable[str]) -> bool:
    """Look at the init containers; return whether one of them still holds the pod up."""
    for at, container in enumerate(status.get("initContainerStatuses") or []):
        summary.count(container)
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), (state.get("waiting") or {}).get("reason")
        if ended is not None and not ended.get("exitCode"):
            continue
        if container.get("name") in sidecars and container.get("started"):
            summary.ready += bool(container.get("ready"))
            continue
        if ended is not None:
            summary.reason = f"Init:{_ending(ended)}"
        elif waiting and waiting != "PodInitializing":
            summary.reason = f"Init:{waiting}"
        else:
            summary.reason = f"Init:{at}/{len(spec.get('initContainers') or [])}"
        return True
    return False


def _run(summary: Summary, status: Object, pod_is_ready: bool) -> None:
    """Look at the main containers; the first that has something to say wins."""
    running = False
    for container in reversed(status.get("containerStatuses") or []):
        summary.count(container)
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), (state.get("waiting") or {}).get("reason")
        if waiting:
            summary.reason = waiting
        elif ended is not None:
            summary.reason = _ending(ended)
        elif container.get("ready") and state.get("running") is not None:
            running = True
            summary.ready += 1
    if summary.reason == "Completed" and running:
        summary.reason = "Running" if pod_is_ready else "NotReady"


def _ending(ended: Object) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _is_true(conditions: list[Object], type_: str) -> bool:
    return any(c.get("type") == type_ and c.get("status") == "True" for c in conditions)


def readiness_gates(pod: Object) -> str:
    """Return how many readiness gates are true, as `true/all`."""
    gates = (pod.get("spec") or {}).get("readinessGates") or []
    if not gates:
        return "<none>"
    conditions = (pod.get("status") or {}).get("conditions") or []
    is_open = sum(_is_true(conditions, gate.get("conditionType", "")) for gate in gates)
    return f"{is_open}/{len(gates)}"
