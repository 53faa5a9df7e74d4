"""What the pods of each node take of it, kept up to date change by change.

Kept from the first question on, so a server whose guests never change their size does without.
"""

from __future__ import annotations

import asyncio
import logging

from livevirt.kube.objects.core import POD
from livevirt.kube.objects.node_share import NodeUsage, Share
from livevirt.kube.objects.request import Object
from livevirt.kube.server import objects
from livevirt.kube.store import Compacted, Key, Overrun, Store, Watch

log = logging.getLogger(__name__)


class Occupancy:
    """Counts pods in and out of nodes; as new as what the store has told its watchers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._usage: NodeUsage[Key] = NodeUsage()
        self._following: asyncio.Task[None] | None = None

    def around(self, node: str, instance: str) -> tuple[Object | None, Share]:
        """Return the pod of an instance on a node, and what the others of that node take."""
        if self._following is None or self._following.done():
            watch = self._read()
            self._following = asyncio.create_task(self._follow(watch), name="node occupancy")
        key, others = self._usage.around(node, instance)
        stored = None if key is None else self._store.get(key)
        return None if stored is None else objects.decode(stored.value), others

    def _read(self) -> Watch:
        """Count everything afresh; return the watch of what changes after that."""
        watch = self._store.watch(POD.resource, since=self._store.revision)
        self._usage.clear()
        for item in self._store.list(POD.resource).items:
            self._usage.put(item.key, objects.decode(item.value))
        return watch

    async def _follow(self, watch: Watch) -> None:
        while True:
            try:
                async for events in watch:
                    for event in events:
                        if event.type == "DELETED":
                            self._usage.drop(event.key)
                        else:
                            self._usage.put(event.key, event.object)
                return  # the store is closed
            except (Compacted, Overrun):
                log.warning("fell behind the store, counting all pods again")
            finally:
                watch.close()
            watch = self._read()
