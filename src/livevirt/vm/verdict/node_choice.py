"""Which nodes would take the pod of an instance, whatever room they have. Pure.

As the scheduler decides, but for what only the other pods of a node could tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.selector import LabelRequirement
from livevirt.vm.spec import node_labels

_FORBIDDING = ("NoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = {
    "In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": "gt", "Lt": "lt",
}  # fmt: skip


def takes(node: Object, spec: Object) -> bool:
    """Return whether the scheduler could place the pod of an instance with that spec on a node."""
    labels = node["metadata"].get("labels") or {}
    wanted = {
        "kubevirt.io/schedulable": "true",
        "kubernetes.io/arch": spec.get("architecture", "amd64"),
        **node_labels.needed(spec),
        **(spec.get("nodeSelector") or {}),
    }
    return (
        all(_tolerated(taint, spec) for taint in _taints(node))
        and all(labels.get(key) == value for key, value in wanted.items())
        and _chosen(node["metadata"]["name"], labels, spec)
    )


def _taints(node: Object) -> list[Object]:
    """Return the taints that keep pods away from a node, cordoned or not ready included."""
    spec = node.get("spec") or {}
    found = [each for each in spec.get("taints") or () if each["effect"] in _FORBIDDING]
    if spec.get("unschedulable"):
        found.append(_keep_away("unschedulable"))
    ready = conditions.find((node.get("status") or {}).get("conditions"), "Ready") or {}
    silent = {"False": "not-ready", "Unknown": "unreachable"}.get(ready.get("status", ""))
    return [*found, _keep_away(silent)] if silent else found


def _keep_away(why: str) -> Object:
    return {"key": f"node.kubernetes.io/{why}", "effect": "NoSchedule"}


def _tolerated(taint: Object, spec: Object) -> bool:
    return any(
        (each.get("effect") or taint["effect"]) == taint["effect"]
        and (each.get("key") or taint["key"]) == taint["key"]
        and (
            each.get("operator") == "Exists"
            or (each.get("value") or "") == (taint.get("value") or "")
        )
        for each in spec.get("tolerations") or ()
    )


def _chosen(name: str, labels: Mapping[str, str], spec: Object) -> bool:
    """Return whether one of the required node affinity terms matches."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    if (required := affinity.get(_REQUIRED)) is None:
        return True
    return any(
        bool(term.get("matchExpressions") or term.get("matchFields"))
        and _all(term.get("matchExpressions"), labels)
        and _all(term.get("matchFields"), {"metadata.name": name})
        for term in required.get("nodeSelectorTerms") or ()
    )


def _all(expressions: Any, values: Mapping[str, str]) -> bool:
    return all(
        LabelRequirement(
            each["key"], _OPERATORS[each["operator"]], tuple(each.get("values") or ())
        ).matches(values)
        for each in expressions or ()
    )
