"""One call to the API, free of HTTP: what the server parses and the local client builds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from livevirt.kube.objects.kind import Kind

Object = dict[str, Any]


def status_of(obj: Object | None) -> Object:
    """Return the status of an object, {} if it has none."""
    return (obj or {}).get("status") or {}


@dataclass(frozen=True, slots=True)
class User:
    """Who is asking; admission sees it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class Request:
    """A verb on a resource. `options` are the query parameters, as text."""

    verb: str  # create get list watch update patch delete deletecollection
    kind: Kind
    version: str
    user: User
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    body: Any = None  # the decoded object, patch or options
    patch: str = ""  # content type of a patch
    duplicates: tuple[str, ...] = ()  # paths of keys given twice in the body
    manager: str = ""  # the client's name, for managed fields
    content_type: str = "application/json"

    @property
    def dry_run(self) -> bool:
        """Whether nothing may be stored."""
        return bool(self.options.get("dryRun"))


class ActionPath(NamedTuple):
    """A verb of the action group, such as start, on an object."""

    resource: str  # plural of a kind; "" for the group's own paths
    namespace: str
    name: str
    action: str  # may hold slashes: "portforward/22/tcp"


class Answer(NamedTuple):
    """What came of a request. `body` is JSON already encoded when it is bytes."""

    code: int
    body: Object | bytes
    warnings: tuple[str, ...] = ()


class WatchEvent(NamedTuple):
    """One line of a watch. The object is shared by all readers: never change it."""

    type: str  # ADDED MODIFIED DELETED BOOKMARK
    object: Object


class Page(NamedTuple):
    """The items of a list and the version of the list itself."""

    items: list[Object]
    resource_version: str
    continue_: str = ""


class Handler(Protocol):
    """The server without its sockets; `client.local` is given one."""

    async def call(self, request: Request) -> Answer:
        """Answer a request other than a watch; refusals raise ApiError."""

    def watch(self, request: Request) -> AsyncIterator[WatchEvent]:
        """Stream the changes a watch asks for."""
