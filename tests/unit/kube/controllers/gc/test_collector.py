from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from livevirt.kube.controllers.gc.collector import Collector, owner_key
from livevirt.kube.controllers.stored import Feed, OwnerReference
from livevirt.kube.objects.kind import Kind
from livevirt.kube.store import Key, Put, Store
from livevirt.vm import kinds
from livevirt.vm.kinds import REGISTRY

POD = Key("pods", "ns", "p")
NODE = Key("nodes", "", "n")

PLACES = {
    "given an owner in a namespace, then it is in the dependent's": (
        POD, "kubevirt.io/v1", "VirtualMachineInstance",
        Key("virtualmachineinstances.kubevirt.io", "ns", "o")),
    "given an owner without a namespace, then it is in none": (
        POD, "v1", "Node", Key("nodes", "", "o")),
    "given a dependent without a namespace, then its owner has none either": (
        NODE, "v1", "Namespace", Key("namespaces", "", "o")),
    "given a dependent without a namespace, when the owner needs one, then nobody knows": (
        NODE, "v1", "Pod", None),
    "given a kind we do not serve, then nobody knows": (POD, "apps/v1", "Deployment", None),
    "given a version we do not serve, then nobody knows": (POD, "v2", "Pod", None),
    "given a kind that is never stored, then nobody knows": (
        POD, "authentication.k8s.io/v1", "TokenReview", None),
}  # fmt: skip


@pytest.mark.parametrize(("dependent", "version", "kind", "place"), PLACES.values(), ids=PLACES)
def test_owner_key(dependent: Key, version: str, kind: str, place: Key | None) -> None:
    assert owner_key(REGISTRY, dependent, OwnerReference(version, kind, "o", "uid")) == place


class Deletions:
    """A client that only takes note of what is deleted."""

    def __init__(self) -> None:
        self.seen: asyncio.Queue[str] = asyncio.Queue()

    async def delete(self, kind: Kind, name: str, namespace: str, **_: Any) -> None:
        self.seen.put_nowait(name)


async def make(store: Store, name: str, **meta: Any) -> None:
    obj = {"metadata": {"name": name, "uid": f"uid-of-{name}", **meta}}
    value = msgspec.json.encode(obj)
    await store.write(Put(Key("configmaps", "ns", name), None, lambda revision: value))


async def test_given_new_objects_when_one_names_an_owner_that_is_gone_then_only_it_goes(
    tmp_path: Path,
) -> None:
    store, client = Store.open(tmp_path / "store.db"), Deletions()
    feed = Feed(store, kinds.REGISTRY)
    collector = Collector(client, store, feed)  # type: ignore[arg-type]
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"}
    tasks = [asyncio.create_task(feed.run()), asyncio.create_task(collector.run())]
    try:
        async with asyncio.timeout(5):
            await make(store, "free", labels={"app": "x"})
            await make(store, "owned", ownerReferences=[gone])
            assert await client.seen.get() == "owned"
        assert client.seen.empty()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.close()
