"""One informer per kind, shared by every controller that reads it."""

from __future__ import annotations

import asyncio

from livevirt.api.kind import Kind
from livevirt.client.interface import Client
from livevirt.control.informer import Informer


class Informers:
    """Makes informers on demand and runs them in the group it is started in."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._by_resource: dict[str, Informer] = {}
        self._group: asyncio.TaskGroup | None = None

    def of(self, kind: Kind) -> Informer:
        """Return the informer of a kind; whoever asks again gets the same one."""
        found = self._by_resource.get(kind.resource)
        if found is None:
            found = self._by_resource[kind.resource] = Informer(self._client, kind)
            self._launch(found)
        return found

    def start(self, group: asyncio.TaskGroup) -> None:
        """Run the informers made so far, and those to come, until the group is cancelled."""
        self._group = group
        for informer in self._by_resource.values():
            self._launch(informer)

    def _launch(self, informer: Informer) -> None:
        if self._group is not None:
            self._group.create_task(informer.run(), name=f"informer-{informer.kind.resource}")
