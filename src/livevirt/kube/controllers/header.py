"""The metadata of a stored object, read without the rest of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from livevirt.kube.store import Key, Store

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
        """Tell whether a finalizer is on the object."""
        return finalizer in (self.finalizers or ())


class _Stored(msgspec.Struct):
    metadata: Header


_decoder = msgspec.json.Decoder(_Stored)


def decode(value: bytes) -> Header:
    """Return the header of a stored object."""
    return _decoder.decode(value).metadata


def find(store: Store, key: Key) -> Header | None:
    """Return the header of the object as last committed, or None."""
    stored = store.get(key)
    return None if stored is None else decode(stored.value)


async def scan(
    store: Store, resource: str, namespace: str | None = None
) -> AsyncIterator[tuple[Key, bytes]]:
    """Yield the objects of a resource, page by page; each page is as new as it can be."""
    after: tuple[str, str] | None = None
    while True:
        # A page is told its rest so that nobody counts it.
        page = store.list(resource, namespace, after=after, limit=PAGE, remaining=0)
        for item in page.items:
            yield item.key, item.value
        if not page.more:
            return
        after = page.items[-1].key[1:]
        await asyncio.sleep(0)
