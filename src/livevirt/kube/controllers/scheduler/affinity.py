"""Terms of affinity: those that choose nodes, and those that choose pods. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from livevirt.kube.objects.selector import LabelRequirement, LabelSelector, label_selector

_OPERATORS = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
    "Gt": "gt",
    "Lt": "lt",
}
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Conditions on one node, all of which must hold; no condition at all chooses no node."""

    labels: tuple[LabelRequirement, ...] = ()
    fields: tuple[LabelRequirement, ...] = ()

    def matches(self, name: str, labels: Labels) -> bool:
        """Return whether a node of that name and with these labels is chosen."""
        if not self.labels and not self.fields:
            return False
        named = {"metadata.name": name}
        return all(each.matches(labels) for each in self.labels) and all(
            each.matches(named) for each in self.fields
        )


def node_term(term: Mapping[str, Any]) -> NodeTerm:
    """Read a NodeSelectorTerm."""
    return NodeTerm(
        _requirements(term.get("matchExpressions")), _requirements(term.get("matchFields"))
    )


def _requirements(expressions: Any) -> tuple[LabelRequirement, ...]:
    return tuple(
        LabelRequirement(each["key"], _OPERATORS[each["operator"]], tuple(each.get("values") or ()))
        for each in expressions or ()
    )


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Chooses pods by labels and namespace; nodes belong together by a label of theirs."""

    topology_key: str
    selector: LabelSelector
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None = None

    def matches(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        """Return whether a pod is chosen."""
        if namespace not in self.namespaces and (
            self.namespace_selector is None or not self.namespace_selector.matches(namespace_labels)
        ):
            return False
        return self.selector.matches(labels)


def pod_term(term: Mapping[str, Any], namespace: str) -> PodTerm:
    """Read a PodAffinityTerm of a pod in that namespace."""
    named = term.get("namespaces") or ()
    chosen = term.get("namespaceSelector")
    own = () if named or chosen is not None else (namespace,)
    return PodTerm(
        term["topologyKey"],
        label_selector(term.get("labelSelector")),
        frozenset((*named, *own)),
        None if chosen is None else label_selector(chosen),
    )


@dataclass(frozen=True, slots=True)
class Affinity:
    """The affinity terms of a pod; weights belong to preferred terms."""

    nodes: tuple[NodeTerm, ...] | None = None  # one of them must match; None: any node
    preferred_nodes: tuple[tuple[int, NodeTerm], ...] = ()
    near: tuple[PodTerm, ...] = ()
    preferred_near: tuple[tuple[int, PodTerm], ...] = ()
    apart: tuple[PodTerm, ...] = ()
    preferred_apart: tuple[tuple[int, PodTerm], ...] = ()


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def affinity(spec: Mapping[str, Any] | None, namespace: str) -> Affinity:
    """Read `spec.affinity` of a pod in that namespace."""
    if not spec:
        return NONE
    nodes = spec.get("nodeAffinity") or {}
    near = spec.get("podAffinity") or {}
    apart = spec.get("podAntiAffinity") or {}
    required = nodes.get(_REQUIRED)
    return Affinity(
        nodes=None if required is None
        else tuple(map(node_term, required.get("nodeSelectorTerms") or ())),
        preferred_nodes=tuple(
            (each["weight"], node_term(each["preference"])) for each in nodes.get(_PREFERRED) or ()
        ),
        near=_pod_terms(near, namespace),
        preferred_near=_weighted(near, namespace),
        apart=_pod_terms(apart, namespace),
        preferred_apart=_weighted(apart, namespace),
    )  # fmt: skip


def _pod_terms(side: Mapping[str, Any], namespace: str) -> tuple[PodTerm, ...]:
    return tuple(pod_term(each, namespace) for each in side.get(_REQUIRED) or ())


def _weighted(side: Mapping[str, Any], namespace: str) -> tuple[tuple[int, PodTerm], ...]:
    return tuple(
        (each["weight"], pod_term(each["podAffinityTerm"], namespace))
        for each in side.get(_PREFERRED) or ()
    )


NONE = Affinity()
