"""The one client interface: what controllers, the node agent and the CLI are written against."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, Page, User, WatchEvent

PatchType = Literal["merge", "json", "strategic", "apply"]


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch of another type than a merge patch, which is a plain dict."""

    type_: PatchType
    body: Any

    @classmethod
    def of(cls, patch: Any) -> Patch:
        """Return a patch as given to `Client.patch` together with its type."""
        return patch if isinstance(patch, Patch) else cls("merge", patch)


class Client(Protocol):
    """Reads and writes objects as one user. Refusals raise `livevirt.errors.ApiError`.

    Objects are plain dicts. What `get`, `list` and `watch` return may be shared with other
    readers: copy before changing.
    """

    user: User

    def for_component(self, name: str) -> Client:
        """Return this client under the name of a component, its field manager in every write."""

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return the object; raises NotFound."""

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

    async def update(self, kind: Kind, obj: Object, *, subresource: str = "") -> Object:
        """Replace the object; its resourceVersion, when set, must be current."""

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
        """Change an object by a merge patch, or by a `Patch` of another type.

        A resourceVersion inside the patch makes it conditional.
        """

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

    async def delete_unchanged(
        self, kind: Kind, name: str, namespace: str = "", *, uid: str, resource_version: str
    ) -> None:
        """Delete the object; raises Conflict if it has changed since that version."""

    async def close(self) -> None:
        """Close connections."""


def if_unchanged(obj: Object, patch: Object) -> Object:
    """Return a patch that is refused once the object is another than the one that was read."""
    meta = obj["metadata"]
    unchanged = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    return {**patch, "metadata": {**patch.get("metadata", {}), **unchanged}}
