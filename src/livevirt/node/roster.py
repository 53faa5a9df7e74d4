"""Which nodes this machine has: those asked for, and those of an earlier run with guests left.

The latter finish what they have and take nothing new. One with nothing left is no node any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from pathlib import Path

from livevirt.errors import NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.node import pod_dir
from livevirt.node.intent import UnknownIntent
from livevirt.node.registration import LEASE_NAMESPACE, MADE_BY


def asked(count: int) -> list[str]:
    """Return the names of so many nodes."""
    return [f"node{number:02}" for number in range(1, count + 1)]


async def settle(client: Client, wanted: Collection[str], nodes: Path, run: Path) -> list[str]:
    """Return the nodes beyond those wanted that have something left; remove the other ones.

    To be done before anything is scheduled.
    """
    pods = (await client.list(core.POD)).items
    there = (await client.list(core.NODE)).items
    left = set(_bound(pods)) & {each["metadata"]["name"] for each in there if _is_ours(each)}
    left |= set(with_intents(nodes, run))
    for each in there:
        name = each["metadata"]["name"]
        if _is_ours(each) and name not in wanted and name not in left:
            await _remove(client, name)
    return sorted(left - set(wanted))


def with_intents(nodes: Path, run: Path) -> Iterable[str]:
    """Yield the nodes that have begun to run a guest and have not forgotten it."""
    with contextlib.suppress(FileNotFoundError):
        for node in nodes.iterdir():
            if any(_is_begun(folder) for folder in pod_dir.all_in(node / "pods", run)):
                yield node.name


def _is_begun(folder: pod_dir.PodDir) -> bool:
    try:
        return folder.read_intent() is not None
    except UnknownIntent:
        return True


def _bound(pods: Iterable[Object]) -> Iterable[str]:
    for pod in pods:
        if name := pod["spec"].get("nodeName"):
            yield name


def _is_ours(node: Object) -> bool:
    """Tell whether a node was one of this machine, and nobody else's."""
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return str(info.get("kubeletVersion") or "").startswith(MADE_BY)


async def _remove(client: Client, name: str) -> None:
    with contextlib.suppress(NotFound):
        await client.delete(core.NODE, name)
    with contextlib.suppress(NotFound):
        await client.delete(core.LEASE, name, LEASE_NAMESPACE)
