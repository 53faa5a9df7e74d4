"""Where a guest that does not run could start."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.node_share import NOTHING, Share
from livevirt.kube.objects.quantity import parse
from livevirt.vm.config.settings import Config
from livevirt.vm.verdict.headroom import placement

Object = dict[str, Any]


def a_node(name: str, memory: str = "8Gi", cpu: str = "4", **more: Any) -> Object:
    labels = dict.fromkeys(("kubevirt.io/schedulable", "machine-type.node.kubevirt.io/q35"), "true")
    labels["kubernetes.io/arch"] = "amd64"
    return {
        "metadata": {"name": name, "labels": {**labels, **more.get("labels", {})}},
        "spec": more.get("spec", {}),
        "status": {"allocatable": {"cpu": cpu, "memory": memory, **more.get("allocatable", {})}},
    }


def a_guest(memory: str = "1Gi", **domain: Any) -> Object:
    return {"domain": {"memory": {"guest": memory}, **domain}}


EXCLUSIVE = {"cpu": {"cores": 2, "dedicatedCpuPlacement": True}}
CPU_MANAGER = {"kubevirt.io/cpumanager": "true"}
ROOM: dict[str, tuple[Object, list[tuple[Object, Share]], list[str], str]] = {
    "given room on one of two, then that one is named": (
        a_guest("4Gi"), [(a_node("small", "2Gi"), NOTHING), (a_node("big"), NOTHING)], ["big"], "",
    ),
    "given what others take, then the rest counts": (
        a_guest("4Gi"), [(a_node("busy"), Share(parse("0"), parse("6Gi")))], [],
        "no node has room: Node busy is missing ",
    ),
    "given too few CPUs, then they are named": (
        a_guest(cpu={"cores": 20}, resources={"requests": {"cpu": "20"}}),
        [(a_node("one"), NOTHING)], [], "no node has room: Node one is missing 16 of cpu",
    ),
    "given huge pages, then they count": (
        {"domain": {"memory": {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}}},
        [(a_node("none"), NOTHING),
         (a_node("some", allocatable={"hugepages-2Mi": "1Gi"}), NOTHING)], ["some"], "",
    ),
    "given a closed node, then nobody takes it": (
        a_guest(), [(a_node("closed", spec={"unschedulable": True}), NOTHING)], [],
        "there is no node that takes it",
    ),
    "given dedicated CPUs, then those the node can give away count": (
        a_guest(**EXCLUSIVE),
        [(a_node("few", labels=CPU_MANAGER, allocatable={"livevirt.io/exclusive-cpus": "1"}),
          NOTHING)],
        [], "no node has room: Node few is missing 1 of cpu",
    ),
    "given many nodes, then not all are told of": (
        a_guest("64Gi"), [(a_node(f"n{i}"), NOTHING) for i in range(5)], [], "no node has room: ",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "nodes", "room", "message"), ROOM.values(), ids=ROOM)
def test_placement(
    spec: Object, nodes: list[tuple[Object, Share]], room: list[str], message: str
) -> None:
    found = placement({"spec": {"template": {"spec": spec}}}, Config(), nodes)
    assert found["nodes"] == room
    assert found["message"].startswith(message)
    assert bool(found["message"]) == (not room)
    assert found["message"].endswith("2 more") == (len(nodes) == 5)
