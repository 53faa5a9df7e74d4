"""Follows the store and follows `plan` for each object that may have lost an owner."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from livevirt.errors import Conflict, LivevirtError, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.queue import Queue
from livevirt.kube.controllers import stored
from livevirt.kube.controllers.gc.plan import (
    FOREGROUND,
    ORPHAN,
    Delete,
    Facts,
    Index,
    Item,
    Look,
    Owner,
    SetFinalizers,
    SetOwners,
    Step,
    plan,
)
from livevirt.kube.controllers.stored import Feed, Header, OwnerReference
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.registry import Registry
from livevirt.kube.store import Event, Key, Store

log = logging.getLogger(__name__)

WORKERS = 32  # deletions under way at once; the store commits them together


class Collector:
    """Deletes what has no owner left; see the package for how."""

    def __init__(self, client: Client, store: Store, feed: Feed) -> None:
        self._client = client
        self._store = store
        self._registry = feed.registry
        self._index = Index()
        self._queue: Queue[Key] = Queue(cap=60.0)
        feed.subscribe(self.note, self.read_all)

    async def run(self) -> None:
        """Collect until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(self._work(), name=f"gc-{number}")

    async def read_all(self) -> None:
        """Index every object there is, and look at those that may have to go."""
        self._index.clear()
        for resource in self._registry.stored:
            async for key, value in stored.scan(self._store, resource):
                found = stored.decode_header(value)
                self._index.put(key, found)
                if found.owners or _ends_by_steps(found):
                    self._queue.add(key)

    def note(self, event: Event) -> None:
        """Process a change, and remember whom it concerns."""
        if event.type == "ADDED" and b'"ownerReferences"' not in event.value:
            return  # has no owner, and is new: true of most
        key, found = event.key, stored.decode_header(event.value)
        if event.type == "DELETED":
            self._index.remove(key)
            self._wake(
                *self._index.dependents(found.uid), *_owner_keys(self._registry, key, found.owners)
            )
            return
        owners = _owners_before(event) if key in self._index else ()
        self._index.put(key, found)
        if found.owners != owners:
            self._wake(
                key, *_owner_keys(self._registry, key, owners)
            )  # an owner may have waited for that
        elif _ends_by_steps(found):
            self._wake(key)

    def _wake(self, *keys: Key) -> None:
        for key in keys:
            self._queue.add(key)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._collect(key)
                self._queue.forget(key)
            except Exception as error:
                wait = self._queue.retry(key)
                trace = None if isinstance(error, LivevirtError) else error
                level = logging.DEBUG if isinstance(error, Conflict) else logging.WARNING
                facts = {"key": str(key), "error": str(error), "retry_in": wait}
                log.log(level, "collection failed", extra=facts, exc_info=trace)
            finally:
                self._queue.done(key)
            await asyncio.sleep(0)  # most keys need no work, and so would never pause

    async def _collect(self, key: Key) -> None:
        seen = self._observe(key)
        if seen is not None:
            for step in plan(seen):
                await self._act(step)

    def _observe(self, key: Key) -> Facts | None:
        found = stored.find_header(self._store, key)
        if found is None:
            return None
        owners = tuple(self._state(key, owner) for owner in found.owners)
        return Facts(Item(key, found), owners, tuple(self._dependents(found.uid)))

    def _state(self, dependent: Key, owner: OwnerReference) -> Owner:
        key = owner_key(self._registry, dependent, owner)
        if key is None:
            return Owner.ALIVE  # unknown to this server
        found = stored.find_header(self._store, key)
        if found is None or found.uid != owner.uid:
            return Owner.GONE
        waits = found.deleting and found.held_by(FOREGROUND)
        return Owner.WAITING if waits else Owner.ALIVE

    def _dependents(self, uid: str) -> list[Item]:
        keys = self._index.dependents(uid)
        found = [(key, stored.find_header(self._store, key)) for key in keys]
        return [
            Item(key, each)
            for key, each in found
            if each is not None and any(owner.uid == uid for owner in each.owners)
        ]

    async def _act(self, step: Step) -> None:
        try:
            match step:
                case Look(key):
                    self._queue.add(key)
                case Delete(key, uid, propagation):
                    kind = self._registry.stored[key.resource]
                    await self._client.delete(
                        kind, key.name, key.namespace, uid=uid, propagation=propagation
                    )
                    log.info("dependent deleted", extra={"key": str(key), "uid": uid})
                case SetOwners(item, owners):
                    kept = [msgspec.to_builtins(owner) for owner in owners]
                    await self._patch(item, {"ownerReferences": kept or None})
                case SetFinalizers(item, finalizers):
                    await self._patch(item, {"finalizers": list(finalizers) or None})
        except NotFound:
            return  # it is gone, which is more than was asked for

    async def _patch(self, item: Item, change: dict[str, Any]) -> None:
        key, found = item.key, item.header
        named = {"uid": found.uid, "resourceVersion": found.resource_version}
        kind = self._registry.stored[key.resource]
        await self._client.patch(kind, key.name, key.namespace, {"metadata": named | change})


def owner_key(registry: Registry, dependent: Key, owner: OwnerReference) -> Key | None:
    """Return where an owner lies; None if it is of a kind, or in a place, we cannot know."""
    kind = _kind_of(registry, owner)
    if kind is None:
        return None
    if not kind.namespaced:
        return Key(kind.resource, "", owner.name)
    # A cluster-scoped object cannot belong to one in a namespace: the reference names none.
    return Key(kind.resource, dependent.namespace, owner.name) if dependent.namespace else None


def _kind_of(registry: Registry, owner: OwnerReference) -> Kind | None:
    kind = registry.of_object({"apiVersion": owner.api_version, "kind": owner.kind})
    return registry.stored.get(kind.resource) if kind is not None else None


def _owners_before(event: Event) -> tuple[OwnerReference, ...]:
    return stored.decode_header(event.previous).owners if event.previous else ()


def _owner_keys(registry: Registry, key: Key, owners: tuple[OwnerReference, ...]) -> list[Key]:
    """Return where those owners lie that the object keeps from going."""
    keys = (owner_key(registry, key, owner) for owner in owners if owner.block_owner_deletion)
    return [each for each in keys if each is not None]


def _ends_by_steps(found: Header) -> bool:
    return found.deleting and (found.held_by(FOREGROUND) or found.held_by(ORPHAN))
