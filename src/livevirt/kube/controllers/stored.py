"""Stored objects for controllers that run beside the store: a feed of changes, and their metadata.

An informer keeps whole objects. Here none are kept, so following every resource costs no memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from livevirt.kube.control.supervisor import undo_on_restart
from livevirt.kube.objects.registry import Registry
from livevirt.kube.store import Compacted, Event, Key, Overrun, Store, Watch

# ---------------------------------------------------------------- changes

log = logging.getLogger(__name__)

OnEvent = Callable[[Event], None]
OnGap = Callable[[], Awaitable[None]]

_RETRY = 1.0  # seconds


class Feed:
    """Notifies its listeners of changes, in order, from the moment `run` begins."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self.registry = registry
        self._listeners: list[OnEvent] = []
        self._readers: list[OnGap] = []
        self._watch: Watch | None = None  # while `run` runs
        self._again = False

    def subscribe(self, on_event: OnEvent, on_gap: OnGap | None = None) -> None:
        """Call `on_event` for each change; first, and after a gap, `on_gap` to read what there is.

        What `on_gap` reads may be newer than the first events that follow it, never older.
        """
        self._listeners.append(on_event)
        undo_on_restart(lambda: self._listeners.remove(on_event))
        if on_gap is not None:
            self._readers.append(on_gap)
            self._read_again()
            undo_on_restart(lambda: self._readers.remove(on_gap))

    async def run(self) -> None:
        """Follow the store until it is closed or the task cancelled."""
        while True:
            try:
                await self._follow()
                if not self._again:
                    return
            except (Compacted, Overrun):
                log.warning("fell behind the store, reading everything again")
            except Exception:
                log.exception("following the store failed")
                await asyncio.sleep(_RETRY)

    def _read_again(self) -> None:
        """Let a reader that comes while the feed runs read what there is, like all others."""
        if self._watch is not None:
            self._again = True
            self._watch.close()

    async def _follow(self) -> None:
        since = self._store.revision
        if self._again and self._watch is not None:
            since, self._again = self._watch.progress, False  # listeners miss nothing
        self._watch = watch = self._store.watch(None, since=since)
        try:
            for read in self._readers:
                await read()
            async for events in watch:
                for event in events:
                    self._notify(event)
                await asyncio.sleep(0)  # history comes without a pause otherwise
        finally:
            watch.close()

    def _notify(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                log.exception("change handler failed", extra={"key": str(event.key)})


# ---------------------------------------------------------------- metadata

PAGE = 500  # objects read in one go, so that others get their turn


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """All there is to a reference, so that it can be written back."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Header(msgspec.Struct, frozen=True, rename="camel"):
    """What decides about an object's end."""

    uid: str
    resource_version: str = ""
    finalizers: tuple[str, ...] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    deletion_timestamp: str | None = None

    @property
    def owners(self) -> tuple[OwnerReference, ...]:
        """The owner references, none if there are none."""
        return self.owner_references or ()

    @property
    def deleting(self) -> bool:
        """Whether its deletion has begun."""
        return self.deletion_timestamp is not None

    def held_by(self, finalizer: str) -> bool:
        """Return whether a finalizer is on the object."""
        return finalizer in (self.finalizers or ())


class _Stored(msgspec.Struct):
    metadata: Header


_decoder = msgspec.json.Decoder(_Stored)


def decode_header(value: bytes) -> Header:
    """Return the header of a stored object."""
    return _decoder.decode(value).metadata


def find_header(store: Store, key: Key) -> Header | None:
    """Return the header of the object as last committed, or None."""
    stored = store.get(key)
    return None if stored is None else decode_header(stored.value)


async def scan(
    store: Store, resource: str, namespace: str | None = None
) -> AsyncIterator[tuple[Key, bytes]]:
    """Yield the objects of a resource, page by page; each page is as new as it can be."""
    after: tuple[str, str] | None = None
    while True:
        # The remaining count is passed along so that it is not computed.
        page = store.list(resource, namespace, after=after, limit=PAGE, remaining=0)
        for item in page.items:
            yield item.key, item.value
        if not page.more:
            return
        after = page.items[-1].key[1:]
        await asyncio.sleep(0)
