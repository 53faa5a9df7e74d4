"""Watches: a kind's changes as a stream, filtered by selectors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from livevirt.errors import BadRequest, Expired, StoreError
from livevirt.kube.objects import refusals
from livevirt.kube.objects.request import Object, Request
from livevirt.kube.server import objects, options, storage_errors
from livevirt.kube.server.options import Selection
from livevirt.kube.server.read import list_objects
from livevirt.kube.server.services import Services
from livevirt.kube.store import Compacted, Event, Overrun

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_BOOKMARK_SECONDS = 60.0


class Frame(NamedTuple):
    """One event of a stream: an object of its own, or a change that is passed on as stored."""

    type: str
    object: Object | None
    change: Event | None = None

    @property
    def value(self) -> bytes | None:
        """The object's JSON, where it is passed on as stored."""
        return self.change.value if self.change is not None else None


async def watch(services: Services, request: Request) -> AsyncIterator[list[Frame]]:
    """Yield batches of frames until the time asked for is over.

    Raises Expired, before or during the stream, when what is asked for is no longer kept.
    """
    selection = Selection(request.kind, request.options)
    since, initial = _start(services, request)
    seconds = options.number(request.options, "timeoutSeconds")
    bookmarks = options.flag(request.options, "allowWatchBookmarks")
    resource = objects.stored_kind(request.kind).resource
    try:
        watcher = services.store.watch(
            resource, request.namespace or selection.namespace or None, since=since
        )
    except Compacted as error:
        raise Expired(f"too old resource version: {since} ({error.oldest})") from None
    loop = asyncio.get_running_loop()
    deadline = None if seconds is None else loop.time() + seconds
    try:
        if initial:
            yield initial
        else:
            yield []  # the stream has begun: headers can be sent
        while deadline is None or loop.time() < deadline:
            wait = _BOOKMARK_SECONDS if deadline is None else deadline - loop.time()
            try:
                async with asyncio.timeout(min(wait, _BOOKMARK_SECONDS)):
                    events = await anext(watcher)
            except TimeoutError:
                if bookmarks and (deadline is None or loop.time() < deadline):
                    yield [_bookmark(request, watcher.progress)]
                continue
            frames = [f for f in (_frame(request, selection, e) for e in events) if f is not None]
            if frames:
                yield frames
    except StopAsyncIteration:
        return
    except (Compacted, Overrun) as error:
        raise Expired(f"too old resource version: {error}") from None
    except StoreError as error:
        raise storage_errors.answer(error) from error
    finally:
        watcher.close()


def _start(services: Services, request: Request) -> tuple[int, list[Frame]]:
    """Return the version to watch from, and what to send before."""
    query = request.options
    version = options.number(query, "resourceVersion") or 0
    send_initial = query.get("sendInitialEvents", "")
    match = query.get("resourceVersionMatch", "")
    if send_initial and match != "NotOlderThan":
        raise BadRequest("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    if match and not send_initial:
        raise BadRequest(
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        )
    if version > services.store.revision:
        raise refusals.too_large_version(version, services.store.revision)
    wants_initial = options.flag(query, "sendInitialEvents")
    if version and not wants_initial:
        return version, []
    if send_initial and not wants_initial:
        return services.store.revision, []
    # Bare watches and version 0 begin with what there is, as synthetic ADDED events.
    plain = {k: v for k, v in query.items() if k in ("labelSelector", "fieldSelector")}
    listing = Request(
        "list", request.kind, request.version, request.user, request.namespace, options=plain
    )
    found, revision = list_objects(services, listing)
    frames = [Frame("ADDED", obj) for obj in found]
    if wants_initial and options.flag(query, "allowWatchBookmarks"):
        frames.append(_bookmark(request, revision, {INITIAL_EVENTS_END: "true"}))
    return revision, frames


def _bookmark(request: Request, revision: int, annotations: dict[str, str] | None = None) -> Frame:
    meta: Object = {"resourceVersion": str(revision)}
    if annotations:
        meta["annotations"] = annotations
    kind = request.kind
    obj = {
        "kind": kind.kind,
        "apiVersion": kind.api_version_of(request.version),
        "metadata": meta,
    }
    return Frame("BOOKMARK", obj)


def _frame(request: Request, selection: Selection, event: Event) -> Frame | None:
    """Return what a change means to a watcher that sees only what the selection shows."""
    kind = request.kind
    passes = request.version == kind.stored_version and objects.stored_kind(kind) is kind
    if selection.everything:
        return _whole(request, event.type, event, passes)
    now_shown = event.type != "DELETED" and selection.matches(_as_seen(request, event.object))
    was_shown = event.previous is not None and selection.matches(
        _as_seen(request, event.previous_object)
    )
    if now_shown:
        return _whole(request, "MODIFIED" if was_shown else "ADDED", event, passes)
    if not was_shown:
        return None
    if event.type == "DELETED":
        return _whole(request, "DELETED", event, passes)
    return Frame("DELETED", _as_seen(request, _at_version(event)))


def _whole(request: Request, type_: str, event: Event, passes: bool) -> Frame:
    """Return a change with all of its object, as stored where the request reads it so."""
    if passes:
        return Frame(type_, None, event)
    return Frame(type_, _as_seen(request, objects.decode(event.value)))


def _as_seen(request: Request, obj: Object) -> Object:
    return objects.as_version(request.kind, request.version, obj)


def _at_version(event: Event) -> Object:
    """Return the state before a change, at the version of the change."""
    was = event.previous_object
    return {**was, "metadata": {**was["metadata"], "resourceVersion": str(event.revision)}}
