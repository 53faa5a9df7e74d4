"""A small server in memory: enough of one to list, watch, lose streams and forget history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from livevirt.errors import AlreadyExists, ApiError, Conflict, Expired, NotFound
from livevirt.kube.client.errors import Unreachable
from livevirt.kube.control.clock import ManualClock
from livevirt.kube.objects.request import Answer, Object, Request, WatchEvent


class MemoryHandler:
    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.version = 0
        self.compacted = 0
        self.requests: list[Request] = []
        self.refuse: Callable[[Request], Exception | None] = lambda request: None
        self.hold: asyncio.Event | None = None  # while there, no call is answered
        self._history: list[tuple[int, str, WatchEvent]] = []
        self._lists: dict[int, list[Object]] = {}
        self._uid = 0
        self._lost = 0  # how often all streams were lost
        self._loss: Exception | None = None
        self._stirred = asyncio.Event()

    # ------------------------------------------------ what the world does

    def put(self, resource: str, namespace: str, name: str, **content: Any) -> Object:
        """Create or change an object."""
        key = (resource, namespace, name)
        old = self.objects.get(key)
        if old is None:
            self._uid += 1
            uid = f"uid-{self._uid}"
        else:
            uid = old["metadata"]["uid"]
        metadata = {"namespace": namespace, "name": name, "uid": uid}
        obj = {"kind": resource, **content, "metadata": metadata}
        return self._write(key, obj, "MODIFIED" if old else "ADDED")

    def drop(self, resource: str, namespace: str, name: str) -> None:
        key = (resource, namespace, name)
        obj = self.objects.get(key)
        if obj is not None:
            self._write(key, obj, "DELETED")

    def compact(self) -> None:
        """Forget the history: no watch can go on from before now."""
        self.compacted = self.version

    def lose_streams(self, loss: Exception | None = None) -> None:
        """End every watch, quietly or with an error; what was on its way is lost."""
        self._lost += 1
        self._loss = loss
        self._stir()

    def bookmark(self, resource: str) -> None:
        event = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})
        self._history.append((self.version, resource, event))
        self._stir()

    # ------------------------------------------------ Handler

    async def call(self, request: Request) -> Answer:
        self.requests.append(request)
        if self.hold is not None:
            await self.hold.wait()
        refusal = self.refuse(request)
        if refusal is not None:
            raise refusal
        resource = request.kind.resource
        key = (resource, request.namespace, request.name)
        match request.verb:
            case "list":
                return Answer(200, self._list(request))
            case "create":
                name = request.body["metadata"]["name"]
                if (resource, request.namespace, name) in self.objects:
                    raise AlreadyExists(f"{name} exists")
                content = {k: v for k, v in request.body.items() if k != "metadata"}
                return Answer(201, self.put(resource, request.namespace, name, **content))
        old = self.objects.get(key)
        if old is None:
            raise NotFound(f"{request.name} not found")
        match request.verb:
            case "get":
                return Answer(200, old)
            case "update":
                said = request.body["metadata"].get("resourceVersion")
                if said and said != old["metadata"]["resourceVersion"]:
                    raise Conflict(f"{request.name} has changed")
                content = {k: v for k, v in request.body.items() if k != "metadata"}
                return Answer(200, self.put(*key, **content))
            case "patch":  # top-level fields are enough here
                content = {k: v for k, v in (old | request.body).items() if k != "metadata"}
                return Answer(200, self.put(*key, **content))
            case "delete":
                self.drop(*key)
                return Answer(200, {})
        raise ApiError(f"no {request.verb} here", code=405)

    async def watch(self, request: Request) -> AsyncIterator[WatchEvent]:
        self.requests.append(request)
        refusal = self.refuse(request)
        if refusal is not None:
            raise refusal
        seen = int(request.options["resourceVersion"])
        if seen < self.compacted:
            raise Expired(f"{seen} is too old")
        lost, sent = self._lost, 0
        while sent < len(self._history) and self._history[sent][0] <= seen:
            sent += 1
        while True:
            stirred = self._stirred
            while self._lost == lost and sent < len(self._history):
                _, resource, event = self._history[sent]
                sent += 1
                if resource == request.kind.resource:
                    yield event
            if self._lost != lost:
                if self._loss is not None:
                    raise self._loss
                return
            await stirred.wait()

    # ------------------------------------------------ inside

    def _list(self, request: Request) -> Object:
        limit, token = int(request.options.get("limit", 0)), request.options.get("continue", "")
        version, start = (int(part) for part in token.split(":")) if token else (self.version, 0)
        if token and version < self.compacted:
            raise Expired("the page is too old")
        if not token:
            found = sorted(self.objects.items())
            self._lists[version] = [o for (r, _, _), o in found if r == request.kind.resource]
        items = self._lists[version]  # all pages are of one moment
        metadata = {"resourceVersion": str(version)}
        if limit and start + limit < len(items):
            metadata["continue"] = f"{version}:{start + limit}"
        end = start + limit if limit else None
        return {"kind": "List", "metadata": metadata, "items": items[start:end]}

    def _write(self, key: tuple[str, str, str], obj: Object, type_: str) -> Object:
        self.version += 1
        obj = obj | {"metadata": obj["metadata"] | {"resourceVersion": str(self.version)}}
        if type_ == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = obj
        self._history.append((self.version, key[0], WatchEvent(type_, obj)))
        self._stir()
        return obj

    def _stir(self) -> None:
        self._stirred.set()
        self._stirred = asyncio.Event()


UNREACHABLE = Unreachable("the connection broke")


async def until(condition: Callable[[], Any], clock: ManualClock | None = None) -> None:
    """Return once the condition holds, letting time pass on the clock if one is given."""
    async with asyncio.timeout(5):
        while not condition():
            await settle(5)
            if clock is not None:
                clock.advance(1)


async def settle(rounds: int = 30) -> None:
    """Let every task go as far as it can without time passing."""
    for _ in range(rounds):
        await asyncio.sleep(0)
