"""Records events of objects in the background; recording never blocks the caller."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Literal

from livevirt.errors import AlreadyExists, ApiError, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.control.folding import Create, Folding, Occurrence, Repeat
from livevirt.kube.objects import conditions
from livevirt.kube.objects.core import EVENT
from livevirt.kube.objects.request import Object

log = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]
BACKLOG = 1000  # occurrences that may wait to be written


class Recorder:
    """Writes events in the background while `run` runs; drops those that cannot be written."""

    def __init__(self, client: Client, component: str, now: Now, instance: str = "") -> None:
        self._client = client
        self._now = now
        self._folding = Folding(component, instance)
        self._backlog: deque[Occurrence] = deque()
        self._arrived = asyncio.Event()
        self._one_writer = asyncio.Lock()
        self._closed = False

    def event(self, obj: Object, type_: EventType, reason: str, message: str) -> None:
        """Record an event of the object; returns at once and never fails."""
        if self._closed or len(self._backlog) >= BACKLOG:
            log.debug("event dropped", extra={"reason": reason, "closed": self._closed})
            return
        note = conditions.human_readable(message)
        self._backlog.append(Occurrence(reference(obj), type_, reason, note))
        self._arrived.set()

    async def run(self) -> None:
        """Write recorded events until closed or cancelled."""
        while not self._closed:
            await self._arrived.wait()
            await self._drain()

    async def close(self) -> None:
        """Accept no more events, and return when the recorded ones are written."""
        self._closed = True
        await self._drain()
        self._arrived.set()

    async def _drain(self) -> None:
        async with self._one_writer:
            self._arrived.clear()
            while self._backlog:
                await self._record(self._backlog.popleft())

    async def _record(self, occurrence: Occurrence) -> None:
        step = self._folding.fold(occurrence, self._now())
        try:
            match step:
                case Create():
                    await self._create(step.event)
                case Repeat():
                    await self._repeat(step)
                case None:
                    log.debug("event dropped, too many", extra=_facts(occurrence))
        except Exception as error:
            if step is not None:
                self._folding.failed(step.identity)
            # Nothing depends on an event, so a failure is only logged.
            trace = None if isinstance(error, ApiError) else error
            facts = _facts(occurrence) | {"error": str(error)}
            log.debug("event not written", extra=facts, exc_info=trace)

    async def _repeat(self, step: Repeat) -> None:
        try:
            await self._client.patch(EVENT, step.name, step.namespace, step.patch)
        except NotFound:  # events expire while we still remember them
            await self._create(step.event)
            self._folding.renamed(step.identity, step.event["metadata"]["name"])

    async def _create(self, event: Object) -> None:
        try:
            await self._client.create(EVENT, event, event["metadata"]["namespace"])
        except AlreadyExists:
            log.debug("event was written before", extra={"event": event["metadata"]["name"]})


def reference(obj: Object) -> Object:
    """Return the ObjectReference by which an event names an object."""
    metadata = obj.get("metadata") or {}
    fields = {
        "apiVersion": obj.get("apiVersion"),
        "kind": obj.get("kind"),
        "namespace": metadata.get("namespace"),
        "name": metadata.get("name"),
        "uid": metadata.get("uid"),
        "resourceVersion": metadata.get("resourceVersion"),
    }
    return {name: value for name, value in fields.items() if value}


def _facts(occurrence: Occurrence) -> dict[str, object]:
    regarding = occurrence.regarding
    return {"event_reason": occurrence.reason, "object": regarding.get("name", "")}
