"""The client over HTTP: any Kubernetes API server, reached through an `Access`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import aiohttp

from livevirt.errors import BadRequest
from livevirt.kube.client import connection, wire
from livevirt.kube.client.access import Access
from livevirt.kube.client.interface import Patch
from livevirt.kube.client.limits import Sleep
from livevirt.kube.client.transport import Call, Sender, Transport, Warn
from livevirt.kube.objects import names
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, Page, User, WatchEvent

WATCH_SECONDS = (
    300,
    600,
)  # after which the server ends a watch; spread, so that not all end at once


class RemoteClient:
    """Given `warn`, passes on the server's warnings. Close it when done.

    Waits and retries only where the server gives a time (`Retry-After`), where the
    limits of the transport allow it and, once, where new credentials may help; a failed
    connection raises `Unreachable`. Without a transport it has one of its own, without limits.
    """

    def __init__(
        self,
        access: Access,
        *,
        manager: str = "livevirt",
        warn: Warn | None = None,
        sleep: Sleep = asyncio.sleep,
        transport: Transport | None = None,
    ) -> None:
        self.access = access
        self.user = User(access.user)
        self._sender = Sender(manager, warn)
        self._transport = Transport(access, sleep=sleep) if transport is None else transport

    def for_component(self, name: str) -> RemoteClient:
        """Return this client under the name of a component, over the same connections."""
        warn = self._sender.warn
        return RemoteClient(self.access, manager=name, warn=warn, transport=self._transport)

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return the object; raises NotFound."""
        return await self._object(_call("get", kind, namespace, name))

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continue_: str = "",
    ) -> Page:
        """Return the matching objects of a namespace, or of all with `namespace=""`."""
        options = wire.selection(labels=labels, fields=fields, limit=limit, continue_=continue_)
        call = replace(_call("list", kind, namespace), options=options)
        return wire.page_of(kind, await self._object(call))

    async def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        resource_version: str = "",
        labels: str = "",
        fields: str = "",
        bookmarks: bool = True,
    ) -> AsyncIterator[WatchEvent]:
        """Stream changes after `resource_version`; raises Expired when that is too old."""
        options = wire.watching(resource_version, bookmarks)
        options |= wire.selection(labels=labels, fields=fields)
        options["timeoutSeconds"] = str(random.randint(*WATCH_SECONDS))
        call = replace(_call("watch", kind, namespace), options=options)
        response = await self._transport.send(call, self._sender)
        async with response:
            connection.keep_alive(response)
            async for line in connection.lines(response):
                event = connection.event_of(line)
                if event.type == "ERROR":
                    raise wire.refusal(event.object, event.object.get("code") or 500)
                yield event

    async def create(
        self,
        kind: Kind,
        obj: Any,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Create an object, or POST to a subresource of `name`."""
        namespace = namespace or wire.namespace_of(obj)
        version = kind.version if subresource else wire.version_for(kind, obj)
        call = _call("create", kind, namespace, name, subresource, version)
        options = {"dryRun": "All"} if dry_run else {}
        return await self._object(replace(call, options=options, body=obj))

    async def update(self, kind: Kind, obj: Object, *, subresource: str = "") -> Object:
        """Replace the object; its resourceVersion, when set, must be current."""
        version = wire.version_for(kind, obj)
        name = obj["metadata"]["name"]
        call = _call("update", kind, wire.namespace_of(obj), name, subresource, version)
        return await self._object(replace(call, body=obj))

    async def patch(
        self,
        kind: Kind,
        name: str,
        namespace: str,
        patch: Any,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Change an object by a merge patch, or by a `Patch` of another type."""
        typed = Patch.of(patch)
        version = wire.version_for(kind, typed.body)
        call = _call("patch", kind, namespace, name, subresource, version)
        return await self._object(
            replace(
                call,
                options=wire.patching(typed.type_, self._sender.component, dry_run),
                body=typed.body,
                content_type=wire.PATCH_TYPES[typed.type_],
            )
        )

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_seconds: int | None = None,
        propagation: str = "",
    ) -> None:
        """Delete the object; raises Conflict if it is another one than `uid` names."""
        options = wire.delete_options(uid=uid, grace_seconds=grace_seconds, propagation=propagation)
        await self._object(replace(_call("delete", kind, namespace, name), body=options))

    async def delete_unchanged(
        self, kind: Kind, name: str, namespace: str = "", *, uid: str, resource_version: str
    ) -> None:
        """Delete the object; raises Conflict if it has changed since that version."""
        options = wire.delete_options(uid=uid, resource_version=resource_version)
        await self._object(replace(_call("delete", kind, namespace, name), body=options))

    async def raw(
        self,
        method: str,
        path: str,
        *,
        options: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = wire.JSON,
    ) -> bytes:
        """Send any request to a path of the server, such as `/version`; return the answer."""
        call = Call(method, path, options or {}, body, content_type, method.lower())
        return await self._transport.answer(call, self._sender)

    async def websocket(
        self, path: str, *, options: Mapping[str, str] | None = None, protocols: tuple[str, ...]
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket to a path of the server, such as a console; the caller closes it."""
        return await self._transport.websocket(path, options or {}, protocols, self._sender)

    async def close(self) -> None:
        """Close the connections, also those of clients made by `for_component`."""
        await self._transport.close()

    async def _object(self, call: Call) -> Object:
        return wire.decoded(await self._transport.answer(call, self._sender))


_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


def _call(
    verb: str,
    kind: Kind,
    namespace: str = "",
    name: str = "",
    subresource: str = "",
    version: str = "",
) -> Call:
    for segment in (namespace, name):
        wrong = names.validate_path_segment(segment) if segment else []
        if wrong:
            raise BadRequest(f'invalid resource name "{segment}": {wrong}')
    path = kind.path(namespace, name, subresource, version)
    resource = f"{kind.resource}/{subresource}" if subresource else kind.resource
    return Call(_METHODS.get(verb, "GET"), path, verb=verb, resource=resource)
