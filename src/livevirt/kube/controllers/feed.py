"""Every change of every resource in one stream, for controllers that live beside the store.

An informer keeps whole objects; what is here keeps none, so following everything costs no memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from livevirt.kube.objects.registry import Registry
from livevirt.kube.store import Compacted, Event, Overrun, Store

log = logging.getLogger(__name__)

OnEvent = Callable[[Event], None]
OnGap = Callable[[], Awaitable[None]]

_RETRY = 1.0  # seconds


class Feed:
    """Tells its listeners of changes, in order, from the moment `run` begins."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self.registry = registry
        self._listeners: list[OnEvent] = []
        self._readers: list[OnGap] = []

    def subscribe(self, on_event: OnEvent, on_gap: OnGap | None = None) -> None:
        """Call `on_event` for each change; first, and after a gap, `on_gap` to read what there is.

        What `on_gap` reads may be newer than the first events that follow it, never older.
        """
        self._listeners.append(on_event)
        if on_gap is not None:
            self._readers.append(on_gap)

    async def run(self) -> None:
        """Follow the store until it is closed or the task cancelled."""
        while True:
            try:
                await self._follow()
                return
            except (Compacted, Overrun):
                log.warning("fell behind the store, reading everything again")
            except Exception:
                log.exception("following the store failed")
                await asyncio.sleep(_RETRY)

    async def _follow(self) -> None:
        watch = self._store.watch(None, since=self._store.revision)
        try:
            for read in self._readers:
                await read()
            async for events in watch:
                for event in events:
                    self._tell(event)
                await asyncio.sleep(0)  # history comes without a pause otherwise
        finally:
            watch.close()

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                log.exception("change handler failed", extra={"key": str(event.key)})
