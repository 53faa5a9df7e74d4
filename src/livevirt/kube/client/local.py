"""The client inside the server's process: the same path through admission and store, no HTTP.

Objects come without managedFields; a write without them leaves the stored ones as they are.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from livevirt.kube.client import wire
from livevirt.kube.client.interface import Patch
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Answer, Handler, Object, Page, Request, User, WatchEvent


class LocalClient:
    """Calls a handler as one user. Given `warn`, passes on the warnings of answers."""

    def __init__(
        self,
        handler: Handler,
        user: User,
        *,
        manager: str = "livevirt",
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.user = user
        self._handler = handler
        self._manager = manager
        self._warn = warn

    def for_component(self, name: str) -> LocalClient:
        """Return this client under the name of a component, its field manager in every write."""
        named = copy.copy(self)
        named._manager = name
        return named

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return the object; raises NotFound."""
        return await self._call(self._request("get", kind, namespace, name))

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
        request = self._request("list", kind, namespace)
        request.options = wire.selection(
            labels=labels, fields=fields, limit=limit, continue_=continue_
        )
        return wire.page_of(kind, await self._call(request))

    def watch(
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
        request = self._request("watch", kind, namespace)
        request.options = wire.watching(resource_version, bookmarks) | wire.selection(
            labels=labels, fields=fields
        )
        return self._handler.watch(request)

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
        request = self._request("create", kind, namespace, name, subresource)
        if dry_run:
            request.options = {"dryRun": "All"}
        if not subresource:
            request.version = wire.version_for(kind, obj)
        request.body = _copied(obj)
        return await self._call(request)

    async def update(self, kind: Kind, obj: Object, *, subresource: str = "") -> Object:
        """Replace the object; its resourceVersion, when set, must be current."""
        name = obj["metadata"]["name"]
        request = self._request("update", kind, wire.namespace_of(obj), name, subresource)
        request.version = wire.version_for(kind, obj)
        request.body = _copied(obj)
        return await self._call(request)

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
        request = self._request("patch", kind, namespace, name, subresource)
        typed = Patch.of(patch)
        request.patch = request.content_type = wire.PATCH_TYPES[typed.type_]
        request.options = wire.patching(typed.type_, self._manager, dry_run)
        request.version = wire.version_for(kind, typed.body)
        request.body = _copied(typed.body)
        return await self._call(request)

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
        request = self._request("delete", kind, namespace, name)
        request.body = wire.delete_options(
            uid=uid, grace_seconds=grace_seconds, propagation=propagation
        )
        await self._call(request)

    async def delete_unchanged(
        self, kind: Kind, name: str, namespace: str = "", *, uid: str, resource_version: str
    ) -> None:
        """Delete the object; raises Conflict if it has changed since that version."""
        request = self._request("delete", kind, namespace, name)
        request.body = wire.delete_options(uid=uid, resource_version=resource_version)
        await self._call(request)

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _request(
        self, verb: str, kind: Kind, namespace: str, name: str = "", subresource: str = ""
    ) -> Request:
        return Request(
            verb,
            kind,
            kind.version,
            self.user,
            namespace=namespace if kind.namespaced else "",
            name=name,
            subresource=subresource,
            manager=self._manager,
        )

    async def _call(self, request: Request) -> Object:
        answer: Answer = await self._handler.call(request)
        if self._warn is not None:
            for warning in answer.warnings:
                self._warn(warning)
        found = wire.decoded(answer.body)
        for obj in (found, *(found.get("items") or ())):
            # No controller reads them, and they may be the larger half of an object.
            if isinstance(metadata := obj.get("metadata"), dict):
                metadata.pop("managedFields", None)
        return found


def _copied(body: Any) -> Any:
    # Through JSON, as over HTTP: neither side sees what the other changes later, and what is no
    # JSON is refused here rather than stored.
    return msgspec.json.decode(msgspec.json.encode(body))
