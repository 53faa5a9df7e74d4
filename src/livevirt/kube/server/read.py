"""GET: one object, or a list of them."""

from __future__ import annotations

import base64
import binascii

import msgspec

from livevirt.errors import BadRequest, Expired
from livevirt.kube.objects import refusals
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Answer, Object, Request
from livevirt.kube.server import objects, options
from livevirt.kube.server.options import Selection
from livevirt.kube.server.services import Services
from livevirt.kube.store import Compacted, NotYet, Stored

_CHUNK = 500  # objects looked at in one go when a selector filters a page


class _Position(msgspec.Struct, array_like=True):
    """Where the next page starts; travels as the `continue` token."""

    revision: int
    namespace: str
    name: str
    remaining: int


def get(services: Services, request: Request) -> Answer:
    """Answer with one object."""
    _check_version(services, request)
    stored = services.stored(request)
    return Answer(200, objects.body(request.kind, request.version, stored))


def list_(services: Services, request: Request) -> Answer:
    """Answer with the objects a request selects, a page of them if it sets a limit."""
    page = _page(services, request)
    return Answer(200, _encode(request.kind, request.version, page))


def list_objects(services: Services, request: Request) -> tuple[list[Object], int]:
    """Return the selected objects decoded, and the version of the list."""
    page = _page(services, request)
    found = [objects.read(request.kind, request.version, item.value) for item in page.items]
    return found, page.revision


class _Page(msgspec.Struct):
    items: list[Stored]
    revision: int
    continue_: str = ""
    remaining: int = 0

    def metadata(self) -> Object:
        found: Object = {"resourceVersion": str(self.revision)}
        if self.continue_:
            found["continue"] = self.continue_
            if self.remaining:
                found["remainingItemCount"] = self.remaining
        return found


def _page(services: Services, request: Request) -> _Page:
    kind = request.kind
    selection = Selection(kind, request.options)
    position = _position(request)
    revision = None if position is None else position.revision
    if position is None:
        revision = _check_version(services, request)
    limit = options.number(request.options, "limit") or 0
    resource = objects.stored_kind(kind).resource
    namespace = request.namespace or selection.namespace or None
    try:
        if selection.name is not None and namespace is not None and revision is None:
            return _single(services, request, selection, namespace)
        if selection.everything:
            after = None if position is None else (position.namespace, position.name)
            page = services.store.list(
                resource, namespace, after=after, limit=limit or None, revision=revision,
                remaining=None if position is None else position.remaining,
            )  # fmt: skip
            found = _Page(page.items, page.revision)
            if page.more:
                found.continue_ = _token(page.revision, page.items[-1], page.remaining)
                found.remaining = page.remaining
            return found
        return _selected(services, request, selection, namespace, position, limit)
    except Compacted as error:
        raise _expired(position is not None, error.oldest) from None
    except NotYet:  # no page of ours ever ended there
        raise BadRequest("continue key is not valid") from None


def _single(services: Services, request: Request, selection: Selection, namespace: str) -> _Page:
    """Answer a list that names one object without looking at any other."""
    assert selection.name is not None
    revision = services.store.revision
    stored = services.store.get(objects.key_of(request.kind, namespace, selection.name))
    if stored is None:
        return _Page([], revision)
    revision = max(revision, stored.revision)
    shown = selection.matches(objects.read(request.kind, request.version, stored.value))
    return _Page([stored] if shown else [], revision)


def _selected(
    services: Services,
    request: Request,
    selection: Selection,
    namespace: str | None,
    position: _Position | None,
    limit: int,
) -> _Page:
    """Collect a page of what matches, looking at as many objects as it takes."""
    resource = objects.stored_kind(request.kind).resource
    revision = None if position is None else position.revision
    after = None if position is None else (position.namespace, position.name)
    kept: list[Stored] = []
    while True:
        page = services.store.list(
            resource, namespace, after=after, limit=_CHUNK if limit else None, revision=revision
        )
        revision = page.revision if revision is None else revision
        for item in page.items:
            if selection.matches(objects.read(request.kind, request.version, item.value)):
                if limit and len(kept) == limit:
                    return _Page(kept, revision, _token(revision, kept[-1], 0))
                kept.append(item)
        if not page.more:
            return _Page(kept, revision)
        after = (page.items[-1].key.namespace, page.items[-1].key.name)


def _encode(kind: Kind, version: str, page: _Page) -> bytes:
    """Splice stored JSON together; a list of thousands is never decoded."""
    head = {
        "kind": f"{kind.kind}List",
        "apiVersion": kind.api_version_of(version),
        "metadata": page.metadata(),
    }
    same = version == kind.stored_version and objects.stored_kind(kind) is kind
    if kind.custom:
        items = [item.value if same else objects.body(kind, version, item) for item in page.items]
    elif same:
        cut = len(objects.list_prefix(kind))
        items = [b"{" + item.value[cut:] for item in page.items]
    else:
        items = [_without_type(objects.read(kind, version, item.value)) for item in page.items]
    return b"".join((objects.encode(head)[:-1], b',"items":[', b",".join(items), b"]}"))


def _without_type(obj: Object) -> bytes:
    return objects.encode({k: v for k, v in obj.items() if k not in ("kind", "apiVersion")})


def _check_version(services: Services, request: Request) -> int | None:
    """Refuse a version from the future; return an older one only if exactly it is wanted."""
    wanted = options.number(request.options, "resourceVersion")
    match = request.options.get("resourceVersionMatch", "")
    if match and match not in ("Exact", "NotOlderThan"):
        raise BadRequest(f"resourceVersionMatch: Unsupported value: {match!r}")
    if match and wanted is None:
        raise BadRequest("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if wanted is None:
        return None
    if wanted > services.store.revision:
        raise refusals.too_large_version(wanted, services.store.revision)
    if match == "Exact" and wanted == 0:
        raise BadRequest('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
    return wanted if match == "Exact" else None


def _position(request: Request) -> _Position | None:
    token = request.options.get("continue", "")
    if not token:
        return None
    if request.options.get("resourceVersionMatch"):
        raise BadRequest("resourceVersionMatch is forbidden when continue is provided")
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Position)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise BadRequest("continue key is not valid") from None


def _token(revision: int, last: Stored, remaining: int) -> str:
    position = _Position(revision, last.key.namespace, last.key.name, remaining)
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode()


def _expired(paging: bool, oldest: int) -> Expired:
    if paging:
        return Expired(
            "The provided continue parameter is too old to display a consistent list result."
            " Start a new list without the continue parameter."
        )
    return Expired(f"The resourceVersion for the provided list is too old; the oldest is {oldest}.")
