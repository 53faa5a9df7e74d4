"""Which nodes there are after a start with fewer of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.errors import NotFound
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.node import registration
from livevirt.node.pod_dir import PodDir

from .test_pod_dir import INTENT


def a_node(name: str, version: str = "livevirt-1") -> Any:
    return {"metadata": {"name": name}, "status": {"nodeInfo": {"kubeletVersion": version}}}


class Objects:
    """A client of a server with these nodes and pods, and no leases."""

    def __init__(self, nodes: list[Any], pods: list[Any]) -> None:
        self.kept = {core.NODE: nodes, core.POD: pods}

    async def list(self, kind: Kind) -> Any:
        return SimpleNamespace(items=list(self.kept[kind]))

    async def delete(self, kind: Kind, name: str, namespace: str = "") -> None:
        if kind is not core.NODE:
            raise NotFound("no lease")
        self.kept[kind] = [each for each in self.kept[kind] if each["metadata"]["name"] != name]

    @property
    def nodes(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.kept[core.NODE]]


async def settled(client: Objects, root: Path, count: int = 1) -> list[str]:
    found: Any = client
    return await registration.settle(found, registration.asked(count), root / "nodes", root / "run")


def test_nodes_are_counted_from_one() -> None:
    assert registration.asked(2) == ["node01", "node02"]


async def test_given_fewer_nodes_then_those_with_something_left_stay_and_the_others_go(
    tmp_path: Path,
) -> None:
    for node in ("node01", "node02"):
        folder = PodDir(tmp_path / "nodes" / node / "pods", tmp_path / "run", "some-uid")
        folder.create(None)
        folder.write_intent(INTENT)
    debris = PodDir(tmp_path / "nodes" / "node04" / "pods", tmp_path / "run", "other-uid")
    debris.create(None)
    pods = [{"spec": {"nodeName": name}} for name in ("node01", "node03", "foreign")]
    nodes = [*map(a_node, ("node01", "node02", "node03", "node04")), a_node("foreign", "v1.30")]
    client = Objects(nodes, [*pods, {"spec": {}}])
    assert await settled(client, tmp_path) == ["node02", "node03"]
    assert client.nodes == ["node01", "node02", "node03", "foreign"]


@pytest.mark.parametrize("count", [1, 4])
async def test_given_a_first_start_then_there_is_nothing_to_settle(
    tmp_path: Path, count: int
) -> None:
    assert await settled(Objects([], []), tmp_path, count) == []
