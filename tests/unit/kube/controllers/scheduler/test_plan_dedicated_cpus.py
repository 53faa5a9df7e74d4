"""Pods with CPUs of their own: only as many as a node can give away."""

from __future__ import annotations

from typing import Any

from livevirt.kube.controllers.scheduler import objects
from livevirt.kube.controllers.scheduler.objects import Pod
from livevirt.kube.controllers.scheduler.plan import Place, Wait, plan
from livevirt.kube.objects.request import Object

from .scheduler_builders import a_fleet, a_node, a_pod

LABELS = {"kubevirt.io/cpumanager": "true"}
ROOM = {"cpu": "4", "livevirt.io/exclusive-cpus": "3"}
NODE = a_node("n1", labels=LABELS, allocatable=ROOM)


def exclusive(name: str, cpu: str, **spec: Any) -> Pod:
    amounts = {"cpu": cpu, "memory": "1Mi"}
    container: Object = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    return objects.read_pod(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"containers": [container], "nodeSelector": LABELS, **spec},
        }
    )


def why(found: Place | Wait) -> str:
    return found.message if isinstance(found, Wait) else ""


def test_given_cpus_are_left_then_it_is_placed() -> None:
    taken = exclusive("q", "2", nodeName="n1")
    assert plan(exclusive("p", "1"), a_fleet(NODE, pods=(taken,))) == Place("n1")


def test_given_the_last_cpu_would_go_then_it_waits() -> None:
    assert "1 Insufficient cpu." in why(plan(exclusive("p", "4"), a_fleet(NODE)))
    taken = exclusive("q", "2", nodeName="n1")
    found = why(plan(exclusive("p", "2"), a_fleet(NODE, pods=(taken,))))
    assert "1 Insufficient cpu." in found
    assert "1 No preemption victims found" in found


def test_given_both_are_too_few_then_it_is_said_once() -> None:
    assert why(plan(exclusive("p", "9"), a_fleet(NODE))).count("Insufficient cpu") == 1


def test_pods_that_share_take_none_of_them() -> None:
    shared = tuple(a_pod(f"q{n}", {"cpu": "100m"}, nodeName="n1") for n in range(5))
    assert plan(exclusive("p", "3"), a_fleet(NODE, pods=shared)) == Place("n1")


def test_given_nodes_without_a_manager_then_none_will_do() -> None:
    fleet = a_fleet(a_node("n1", allocatable=ROOM))
    assert "didn't match Pod's node affinity/selector" in why(plan(exclusive("p", "1"), fleet))
