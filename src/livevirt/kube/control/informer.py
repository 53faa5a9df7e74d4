"""A live copy of the objects of a kind, and callbacks for what changes in it.

One list, then a watch that goes on from where it broke off. When the server no longer knows
that point, the list is read again and compared with the copy, so nothing is missed: what went
away meanwhile is reported as deleted, and an object that was replaced by another of its name as
deleted and added.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Hashable
from typing import Any

from livevirt.errors import ApiError, Expired
from livevirt.kube.client.errors import Unreachable
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Cache, Change, Changes, IndexOf, Key, Objects, key_of
from livevirt.kube.control.clock import Clock, sleep
from livevirt.kube.control.supervisor import undo_on_restart
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, WatchEvent

log = logging.getLogger(__name__)

OnChange = Callable[[Change], None]
#: Returns an object with only the fields that are needed of it; it may change the one it is given.
Transform = Callable[[Object], Object]

PAGE = 500  # objects per list request
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0  # seconds between attempts that came to nothing


class Informer:
    """Reads are of the copy and never wait; the objects are shared, so never change one.

    With a `transform`, the copy holds what that returns for each object.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        *,
        clock: Clock | None = None,
    ) -> None:
        self.kind = kind
        self.transform: Transform | None = None  # to be set before it runs
        self.synced = asyncio.Event()  # set once the first list is in the copy, and ever after
        self._client = client
        self._namespace, self._labels, self._fields = namespace, labels, fields
        self._given_clock = clock
        self._cache = Cache()
        self._handlers: list[OnChange] = []
        self._version = ""  # how far the copy has followed the server; empty: list first
        self._fruitless = 0  # attempts since one last lasted

    def __len__(self) -> int:
        return len(self._cache)

    def get(self, key: Key) -> Object | None:
        """Return the object, or None if the copy has none of that key."""
        return self._cache.get(key)

    def list(self, namespace: str = "") -> Objects:
        """Return the objects of a namespace, or all of them."""
        return self._cache.list(namespace)

    def index(self, name: str, values: IndexOf) -> None:
        """Keep an index; the function gives the values an object is to be found under."""
        self._cache.index(name, values)
        undo_on_restart(lambda: self._cache.drop_index(name))

    def by(self, index: str, value: Hashable) -> Objects:
        """Return the objects found under a value of an index."""
        return self._cache.by(index, value)

    def on_change(self, handler: OnChange) -> None:
        """Call back for every change from now on, and at once for what is already there."""
        self._handlers.append(handler)
        undo_on_restart(lambda: self._handlers.remove(handler))
        for obj in self._cache.list():
            self._notify(handler, Change(key_of(obj), None, obj))

    async def run(self) -> None:
        """Follow the server until cancelled; no refusal or broken connection ends it."""
        while True:
            started = self._clock.time()
            try:
                if not self._version:
                    await self._relist()
                await self._follow()
            except Expired:
                log.debug("watch is too old, listing again", extra=self._facts())
                self._version = ""
            except Unreachable as error:  # we know where we were: go on from there
                log.warning("watch broke off", extra=self._facts(error))
            except ApiError as error:
                log.warning("list or watch refused", extra=self._facts(error))
                self._version = ""
            except Exception:
                log.exception("informer failed, listing again", extra=self._facts())
                self._version = ""
            if self._clock.time() - started >= LONGEST_WAIT:
                self._fruitless = 0
            await self._wait()

    async def _relist(self) -> None:
        items, version = await self._read_all()
        self._publish(self._cache.replace(items))
        self._version = version
        self.synced.set()

    async def _read_all(self) -> tuple[Objects, str]:
        try:
            items: Objects = []
            page = await self._client.list(self.kind, limit=PAGE, **self._selection())
            while page.continue_:
                items += map(self._kept, page.items)
                page = await self._client.list(
                    self.kind, limit=PAGE, continue_=page.continue_, **self._selection()
                )
            items += map(self._kept, page.items)
            return items, page.resource_version
        except Expired:
            # The next page is too old already: only a list in one piece can end.
            page = await self._client.list(self.kind, **self._selection())
            return [*map(self._kept, page.items)], page.resource_version

    async def _follow(self) -> None:
        """Process the watch until it ends, which every server makes it do now and then."""
        events = self._client.watch(self.kind, resource_version=self._version, **self._selection())
        try:
            async for event in events:
                self._take(event)
                self._fruitless = 0
        finally:
            # A generator left to the collector would hold its connection until then.
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()

    def _take(self, event: WatchEvent) -> None:
        match event.type:
            case "ADDED" | "MODIFIED":
                self._publish(self._cache.put(self._kept(event.object)))
            case "DELETED":
                self._publish(self._cache.remove(self._kept(event.object)))
        # A bookmark carries nothing but the version; other types are not ours to know.
        self._version = event.object["metadata"]["resourceVersion"]

    def _kept(self, obj: Object) -> Object:
        return obj if self.transform is None else self.transform(obj)

    def _publish(self, changes: Changes) -> None:
        for change in changes:
            for handler in self._handlers:
                self._notify(handler, change)

    def _notify(self, handler: OnChange, change: Change) -> None:
        try:
            handler(change)
        except Exception:
            log.exception("change handler failed", extra=self._facts() | {"key": str(change.key)})

    async def _wait(self) -> None:
        """Wait longer after each attempt that came to nothing, and not at all after the first."""
        if self._fruitless:
            longest = min(FIRST_WAIT * 2.0 ** min(self._fruitless - 1, 16), LONGEST_WAIT)
            await sleep(self._clock, longest * random.uniform(0.5, 1.0))
        else:
            await asyncio.sleep(0)
        self._fruitless += 1

    @property
    def _clock(self) -> Clock:
        if self._given_clock is None:
            self._given_clock = asyncio.get_running_loop()
        return self._given_clock

    def _selection(self) -> dict[str, Any]:
        return {"namespace": self._namespace, "labels": self._labels, "fields": self._fields}

    def _facts(self, error: ApiError | None = None) -> dict[str, Any]:
        facts = {"resource": self.kind.resource, "version": self._version}
        return facts if error is None else facts | {"error": str(error)}
