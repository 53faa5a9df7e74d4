"""How controllers are run together: the parts they share, and one informer per kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Change, Key
from livevirt.kube.control.clock import Now
from livevirt.kube.control.informer import Informer, Transform
from livevirt.kube.control.supervisor import Supervisor
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.node_share import NodeUsage, Share
from livevirt.kube.objects.request import Object


class Informers:
    """Makes informers on demand and runs them in the group it is started in."""

    def __init__(
        self, client: Client, transform: Callable[[Kind], Transform] | None = None
    ) -> None:
        """Create them; `transform` returns what each kind is reduced to."""
        self._client, self._transform = client, transform
        self._informers: dict[tuple[str, str], Informer] = {}
        self._group: asyncio.TaskGroup | None = None
        self._supervisor = Supervisor()

    def of(self, kind: Kind, labels: str = "") -> Informer:
        """Return the informer of a kind, or of those of it that a selector picks.

        The same kind always gets the same one.
        """
        found = self._informers.get((kind.resource, labels))
        if found is None:
            found = Informer(self._client, kind, labels=labels)
            found.transform = None if self._transform is None else self._transform(kind)
            self._informers[kind.resource, labels] = found
            self._launch(found)
        return found

    def start(self, group: asyncio.TaskGroup, supervisor: Supervisor | None = None) -> None:
        """Run the informers made so far, and those to come, until the group is cancelled."""
        self._group = group
        self._supervisor = supervisor or self._supervisor
        for informer in self._informers.values():
            self._launch(informer)

    def unsynced(self) -> list[str]:
        """Return the resources whose first list has not arrived yet."""
        waiting = (each for each in self._informers.values() if not each.synced.is_set())
        return sorted(each.kind.resource for each in waiting)

    def _launch(self, informer: Informer) -> None:
        if self._group is not None:
            name = f"informer-{informer.kind.resource}"
            self._group.create_task(self._supervisor.keep(name, informer.run), name=name)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What every controller is built from, on any API server."""

    client: Client
    now: Now
    informers: Informers


#: Builds a controller from the shared parts and runs it until cancelled. What it needs of them it
#: takes before it first waits.
Factory = Callable[[Runtime], Coroutine[Any, Any, None]]


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
