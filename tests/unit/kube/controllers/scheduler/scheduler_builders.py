"""Nodes, pods and fleets that read aloud."""

from __future__ import annotations

from typing import Any

from livevirt.kube.controllers.scheduler import objects
from livevirt.kube.controllers.scheduler.fleet import Fleet
from livevirt.kube.controllers.scheduler.objects import Node, Pod
from livevirt.kube.objects.request import Object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def a_node_object(
    name: str, *, labels: Any = None, status: Any = None, allocatable: Any = None, **spec: Any
) -> Object:
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"} | (allocatable or {})
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {"allocatable": room, **(status or {})},
    }


def a_node(name: str, **rest: Any) -> Node:
    return objects.read_node(a_node_object(name, **rest))


def a_pod_object(
    name: str, requests: Any = None, *, labels: Any = None, namespace: str = "ns", **spec: Any
) -> Object:
    resources = {"requests": requests} if requests else {}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels or {}},
        "spec": {"containers": [{"name": "c", "resources": resources}], **spec},
    }


def a_pod(name: str = "p", requests: Any = None, **rest: Any) -> Pod:
    return objects.read_pod(a_pod_object(name, requests, **rest))


def a_fleet(*nodes: Node, pods: tuple[Pod, ...] = ()) -> Fleet:
    fleet = Fleet()
    for node in nodes:
        fleet.put_node(node)
    for pod in pods:
        fleet.put_pod(pod)
    return fleet


def an_expression(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, "values": list(values)}


def node_affinity(*terms: Object) -> Object:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def pod_term(topology_key: str, labels: Object, **rest: Any) -> Object:
    return {"topologyKey": topology_key, "labelSelector": {"matchLabels": labels}, **rest}


def near(*terms: Object) -> Object:
    return {"podAffinity": {REQUIRED: list(terms)}}


def apart(*terms: Object) -> Object:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}
