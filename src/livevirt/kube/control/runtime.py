"""How controllers are run together: the parts they share, and one informer per kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.control.informer import Informer
from livevirt.kube.objects.kind import Kind


class Informers:
    """Makes informers on demand and runs them in the group it is started in."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._informers: dict[tuple[str, str], Informer] = {}
        self._group: asyncio.TaskGroup | None = None

    def of(self, kind: Kind, labels: str = "") -> Informer:
        """Return the informer of a kind, or of those of it that a selector picks.

        Whoever asks again gets the same one.
        """
        found = self._informers.get((kind.resource, labels))
        if found is None:
            found = Informer(self._client, kind, labels=labels)
            self._informers[kind.resource, labels] = found
            self._launch(found)
        return found

    def start(self, group: asyncio.TaskGroup) -> None:
        """Run the informers made so far, and those to come, until the group is cancelled."""
        self._group = group
        for informer in self._informers.values():
            self._launch(informer)

    def _launch(self, informer: Informer) -> None:
        if self._group is not None:
            self._group.create_task(informer.run(), name=f"informer-{informer.kind.resource}")


@dataclass(frozen=True, slots=True)
class Runtime:
    """What every controller is built from, on any API server."""

    client: Client
    now: Now
    informers: Informers


#: Builds a controller from the shared parts and runs it until cancelled. What it needs of them it
#: takes before it first waits.
Factory = Callable[[Runtime], Coroutine[Any, Any, None]]
