"""Objects as informers hold them, read the way a verdict's inputs are gathered."""

from __future__ import annotations

from livevirt.kube.control.cache import Change
from livevirt.kube.control.informer import Informer
from livevirt.kube.control.key import Key
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.node_share import NodeUsage, Share
from livevirt.kube.objects.request import Object

#: What the room of a guest's pod depends on.
ROOM = (
    core.POD, core.NODE, core.NAMESPACE, core.QUOTA, core.LIMIT_RANGE,
)  # fmt: skip


class InformerReader:
    """A `gather.LocalReader` over informers, of the kinds in `ROOM` and of others it is given.

    Pods are counted from the first question about a node on, so a server whose guests never change
    their size does without.
    """

    def __init__(self, informers: Informers, *others: Kind) -> None:
        self._informers: dict[str, Informer] = {
            kind.resource: informers.of(kind) for kind in (*ROOM, *others)
        }
        self._usage: NodeUsage[Key] | None = None

    async def wait_synced(self) -> None:
        """Wait until every informer has listed its objects."""
        for informer in self._informers.values():
            await informer.synced.wait()

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object, None if the cache has none."""
        return self._informers[kind.resource].get(Key(namespace, name))

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return the objects of a namespace (all with "")."""
        return self._informers[kind.resource].list(namespace)

    def occupancy(self, node: str, instance: str) -> tuple[Object | None, Share]:
        """Return the pod of an instance on a node, and what the other pods of that node use."""
        pods = self._informers[core.POD.resource]
        if self._usage is None:
            self._usage = NodeUsage()
            pods.on_change(self._count)
        key, others = self._usage.around(node, instance)
        return None if key is None else pods.get(key), others

    def _count(self, change: Change) -> None:
        assert self._usage is not None
        if change.new is None:
            self._usage.drop(change.key)
        else:
            self._usage.put(change.key, change.new)
