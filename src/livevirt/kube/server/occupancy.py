"""What the pods of each node take of it, kept up to date change by change.

Kept from the first question on, so a server whose guests never change their size does without.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from livevirt.kube.objects.core import POD
from livevirt.kube.objects.node_share import NOTHING, Share, granted, instance_of
from livevirt.kube.objects.request import Object
from livevirt.kube.server import objects
from livevirt.kube.store import Compacted, Key, Overrun, Store, Watch

log = logging.getLogger(__name__)


class _Counted(NamedTuple):
    """How a pod was counted in."""

    node: str
    instance: str  # the uid of the one it runs, if any
    share: Share


class Occupancy:
    """Counts pods in and out of nodes; as new as what the store has told its watchers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted: dict[Key, _Counted] = {}
        self._taken: dict[str, Share] = {}  # by node
        self._launchers: dict[tuple[str, str], Key] = {}  # by node and instance
        self._following: asyncio.Task[None] | None = None

    def around(self, node: str, instance: str) -> tuple[Object | None, Share]:
        """Return the pod of an instance on a node, and what the others of that node take."""
        if self._following is None or self._following.done():
            watch = self._read()
            self._following = asyncio.create_task(self._follow(watch), name="node occupancy")
        key, taken = self._launchers.get((node, instance)), self._taken.get(node, NOTHING)
        if key is None:
            return None, taken
        stored = self._store.get(key)
        own = None if stored is None else objects.decode(stored.value)
        return own, taken - self._counted[key].share

    def _read(self) -> Watch:
        """Count everything afresh; return the watch of what changes after that."""
        watch = self._store.watch(POD.resource, since=self._store.revision)
        for memory in (self._counted, self._taken, self._launchers):
            memory.clear()
        for item in self._store.list(POD.resource).items:
            self._put(item.key, objects.decode(item.value))
        return watch

    async def _follow(self, watch: Watch) -> None:
        while True:
            try:
                async for events in watch:
                    for event in events:
                        self._drop(event.key)
                        if event.type != "DELETED":
                            self._put(event.key, event.object)
                return  # the store is closed
            except (Compacted, Overrun):
                log.warning("fell behind the store, counting all pods again")
            finally:
                watch.close()
            watch = self._read()

    def _put(self, key: Key, pod: Object) -> None:
        node = pod["spec"].get("nodeName")
        if not node:
            return
        counted = _Counted(node, instance_of(pod), granted(pod))
        self._counted[key] = counted
        self._taken[node] = self._taken.get(node, NOTHING) + counted.share
        if counted.instance:
            self._launchers[node, counted.instance] = key

    def _drop(self, key: Key) -> None:
        counted = self._counted.pop(key, None)
        if counted is None:
            return
        self._taken[counted.node] = self._taken[counted.node] - counted.share
        launched = (counted.node, counted.instance)
        if self._launchers.get(launched) == key:
            del self._launchers[launched]
