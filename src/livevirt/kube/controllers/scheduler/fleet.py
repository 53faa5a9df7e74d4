"""The nodes and what is taken of them, kept up to date change by change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from livevirt.kube.control.cache import Key
from livevirt.kube.controllers.scheduler.affinity import PodTerm
from livevirt.kube.controllers.scheduler.objects import Node, Pod, Taken

REMEMBERED = 256  # terms whose pods are counted along; others are counted when asked for

_NOTHING = Taken()


class Fleet:
    """Counts pods in and out of nodes. A pod that was assumed counts until it is seen or not."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._taken: dict[str, Taken] = {}
        self._pods: dict[Key, Pod] = {}  # those that have a node
        self._assumed: dict[Key, str] = {}  # → uid
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._apart: dict[PodTerm, Counter[str]] = {}  # who keeps others away: nodes of such pods
        self._matched: dict[PodTerm, Counter[str]] = {}  # nodes of the pods a term chooses

    def put_node(self, node: Node) -> None:
        """Add or replace a node."""
        self.nodes[node.name] = node

    def remove_node(self, name: str) -> None:
        """Forget a node; pods that are said to be on it still count, should it come back."""
        self.nodes.pop(name, None)

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> bool:
        """Set a namespace's labels, by which terms choose pods too; return whether they are new."""
        if self._namespaces.get(name) == labels:
            return False
        self._namespaces[name] = labels
        self._matched.clear()
        return True

    def remove_namespace(self, name: str) -> None:
        """Forget a namespace."""
        if self._namespaces.pop(name, None) is not None:
            self._matched.clear()

    def put_pod(self, pod: Pod) -> bool:
        """Add or replace a pod on its node; return whether anything changed."""
        self._assumed.pop(pod.key, None)
        if self._pods.get(pod.key) == pod:
            return False
        self.remove_pod(pod.key)
        self._enter(pod)
        return True

    def assume(self, pod: Pod, node: str) -> None:
        """Count a pod in that is about to be bound."""
        self.remove_pod(pod.key)
        self._enter(replace(pod, node=node))
        self._assumed[pod.key] = pod.uid

    def forget(self, pod: Pod) -> bool:
        """Count a pod out whose binding failed; return whether it still was only assumed."""
        return self._assumed.get(pod.key) == pod.uid and self.remove_pod(pod.key)

    def remove_pod(self, key: Key) -> bool:
        """Count a pod out that is gone or has ended; return whether it was counted."""
        self._assumed.pop(key, None)
        pod = self._pods.pop(key, None)
        if pod is not None:
            self._count(pod, -1)
        return pod is not None

    def assumes(self, key: Key, uid: str) -> bool:
        """Return whether the pod was given a node that has not been seen on it yet."""
        return self._assumed.get(key) == uid

    def taken(self, node: str) -> Taken:
        """Return what the pods of a node take; not to be changed."""
        return self._taken.get(node, _NOTHING)

    def matches(self, term: PodTerm, pod: Pod) -> bool:
        """Return whether a term chooses a pod."""
        namespace = pod.key.namespace
        return term.matches(namespace, pod.labels, self._namespaces.get(namespace, {}))

    def chosen(self, term: PodTerm) -> Counter[str]:
        """Return how many pods of each node a term chooses; not to be changed."""
        found = self._matched.get(term)
        if found is None:
            found = Counter(pod.node for pod in self._pods.values() if self.matches(term, pod))
            while len(self._matched) >= REMEMBERED:
                self._matched.pop(next(iter(self._matched)))
            self._matched[term] = found
        return found

    def places(self, key: str, nodes: Counter[str]) -> Counter[str]:
        """Return the same count by the value of a label of the nodes."""
        found: Counter[str] = Counter()
        for name, count in nodes.items():
            node = self.nodes.get(name)
            if node is not None and key in node.labels:
                found[node.labels[key]] += count
        return found

    def kept_away(self, pod: Pod) -> set[tuple[str, str]]:
        """Return the labels of nodes where pods are that want no pod like this near them."""
        return {
            (term.topology_key, value)
            for term, nodes in self._apart.items()
            if self.matches(term, pod)
            for value in self.places(term.topology_key, nodes)
        }

    def _enter(self, pod: Pod) -> None:
        self._pods[pod.key] = pod
        self._count(pod, 1)

    def _count(self, pod: Pod, sign: int) -> None:
        taken = self._taken.get(pod.node)
        if taken is None:
            taken = self._taken[pod.node] = Taken()
        taken.add(pod, sign)
        if not taken.pods:
            del self._taken[pod.node]
        for term in pod.affinity.apart:
            holders = self._apart.setdefault(term, Counter())
            _shift(holders, pod.node, sign)
            if not holders:
                del self._apart[term]
        for term, nodes in self._matched.items():
            if self.matches(term, pod):
                _shift(nodes, pod.node, sign)


def _shift(counter: Counter[str], node: str, sign: int) -> None:
    counter[node] += sign
    if not counter[node]:
        del counter[node]
