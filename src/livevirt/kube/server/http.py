"""HTTP around the API: reads requests, writes answers, streams watches."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import msgspec
import yaml
from aiohttp import web

from livevirt.errors import ApiError, BadRequest, Forbidden
from livevirt.kube.control.metrics import Source
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import ActionPath, Object, Request, User
from livevirt.kube.server import bodies, managed, objects, responses, table
from livevirt.kube.server.actions import (
    JSON_HEADERS,
    MAX_BODY,
    PUBLIC,
    ActionFront,
    ActionHandler,
    read_body,
    response,
)
from livevirt.kube.server.api import Api, check_subresource
from livevirt.kube.server.authenticate import ANONYMOUS, Authenticator, check_own_name
from livevirt.kube.server.connections import WRITE_SECONDS
from livevirt.kube.server.health import Health
from livevirt.kube.server.metrics import Metrics
from livevirt.kube.server.responses import Form
from livevirt.kube.server.route import Target

log = logging.getLogger(__name__)

_WATCH_PART = 256 * 1024  # bytes of a watch that are written together
_TRANSFORMS = ("Table", "PartialObjectMetadata")
_LIST_TRANSFORMS = ("Table", "PartialObjectMetadataList")

#: Answers a subresource by taking over the response (logs).
StreamHandler = Callable[[Request, web.BaseRequest], Awaitable[web.StreamResponse]]


class _OwnUsers:
    """Admits every user that this server has authenticated."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def authenticate(self, http: web.BaseRequest, path: str) -> User:
        transport = http.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        user = self._authenticator.user(http.headers.get("Authorization", ""), certificate)
        if user is ANONYMOUS and path not in PUBLIC:
            raise Forbidden(
                f'forbidden: User "{user.name}" cannot {http.method.lower()} path "{path}"'
            )
        check_own_name(user, http.headers)
        return user

    async def authorize(
        self, user: User, http: web.BaseRequest, target: Target | ActionPath | None
    ) -> None:
        """Allow everything: roles are not enforced."""


class Front(ActionFront):
    """Turns HTTP requests into API requests and answers back into HTTP."""

    def __init__(self, api: Api, authenticator: Authenticator, metrics: Metrics) -> None:
        super().__init__(api.services.registry, _OwnUsers(authenticator), metrics)
        self._api = api
        self._streams: dict[tuple[str, str], StreamHandler] = {}
        self.health = Health(api.services.store.probe)
        self.names = frozenset()

    def attach(
        self,
        action: ActionHandler,
        streams: dict[tuple[str, str], StreamHandler],
        metrics: Iterable[Source] = (),
    ) -> None:
        """Begin to answer what reaches into guests: verbs on VMs, streams by resource, metrics."""
        self._action, self._streams = action, streams
        self._metrics.sources += metrics

    # ------------------------------------------------------------ resources

    async def _answer(self, http: web.BaseRequest, request: Request) -> web.StreamResponse:
        if request.subresource:
            stream = self._streams.get((request.kind.resource, request.subresource))
            if stream is not None:
                return await stream(request, http)
            check_subresource(request)  # before the body, which may be anything there
        accept = http.headers.get("Accept", "")
        if request.verb == "watch":
            form = responses.choose(accept, _TRANSFORMS, stream=True)
            return await self._watch(http, request, form)
        form = responses.choose(accept, _LIST_TRANSFORMS if request.verb == "list" else _TRANSFORMS)
        if request.verb in ("create", "update", "patch", "delete", "deletecollection"):
            await _read_body(http, request)
        if request.verb == "create" and not request.subresource:
            self._api.services.check_space()
        answer = await self._api.call(request)
        raw = self._encoded(request, answer.body, form)
        return await response(http, answer, raw, form.content_type)

    def _encoded(self, request: Request, body: Object | bytes, form: Form) -> bytes:
        if form.as_:
            body = self._transformed(request, body, form)
        if form.media == responses.YAML:
            plain = objects.decode(body) if isinstance(body, bytes) else body
            return yaml.safe_dump(plain, sort_keys=True).encode()
        raw = body if isinstance(body, bytes) else objects.encode(body)
        pretty = request.options.get("pretty", "") not in ("", "false", "0")
        return msgspec.json.format(raw) if pretty else raw

    def _transformed(self, request: Request, body: Object | bytes, form: Form) -> Object:
        obj = objects.decode(body) if isinstance(body, bytes) else body
        kind = request.kind
        if obj.get("kind") == "Status":
            return obj
        if obj.get("kind") == f"{kind.kind}List":
            items = [_with_type(kind, request.version, item) for item in obj["items"]]
            if form.as_ == "Table":
                return self._table(request, items, obj["metadata"])
            return table.partial_metadata_list(items, obj["metadata"])
        if form.as_ == "Table":
            meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            return self._table(request, [obj], meta)
        return table.partial_metadata(obj)

    def _table(
        self, request: Request, items: list[Object], meta: Object, headers: bool = True
    ) -> Object:
        include: Any = request.options.get("includeObject", "Metadata") or "Metadata"
        if include not in ("None", "Metadata", "Object"):
            raise BadRequest(f"unrecognized includeObject value: {include!r}")
        return table.table(
            request.kind, items, now=self._api.services.now(), include=include, list_meta=meta,
            headers=headers,
        )  # fmt: skip

    # ------------------------------------------------------------ watches

    async def _watch(
        self, http: web.BaseRequest, request: Request, form: Form
    ) -> web.StreamResponse:
        response: web.StreamResponse | None = None
        with self._metrics.watching():
            try:
                headers = True
                async for batch in self._api.frames(request):
                    lines = []
                    for frame in batch:
                        obj = frame.object
                        if form.as_:
                            if obj is None:
                                obj = objects.decode(frame.value or b"")
                            obj = self._watched(request, frame.type, obj, form, headers)
                            headers = False
                        raw = objects.encode(obj) if obj is not None else frame.value or b""
                        lines.append(b'{"type":"%b","object":%b}\n' % (frame.type.encode(), raw))
                    if response is None:
                        response = web.StreamResponse(headers=JSON_HEADERS)
                        response.enable_chunked_encoding()
                        await response.prepare(http)
                    for part in _parts_of(lines):
                        await _send(http, response, part)
            except ApiError as error:
                if response is None:
                    raise
                line = {"type": "ERROR", "object": error.status()}
                await _send(http, response, objects.encode(line) + b"\n")
            except ConnectionError:
                log.debug("watcher left", extra={"resource": request.kind.resource})
                raise asyncio.CancelledError from None  # the client is gone
            assert response is not None
            await response.write_eof()
        return response

    def _watched(
        self, request: Request, type_: str, obj: Object, form: Form, headers: bool
    ) -> Object:
        if form.as_ == "Table":
            meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            items = [] if type_ == "BOOKMARK" else [obj]
            return self._table(request, items, meta, headers)
        return table.partial_metadata(obj)


async def _read_body(http: web.BaseRequest, request: Request) -> None:
    content_type, content = http.headers.get("Content-Type", ""), http.content
    request.manager = managed.manager_of(http.headers.get("User-Agent", ""))
    # A small body comes together with the headers: there are no pieces to gather.
    raw = content.read_nowait() if content.is_eof() else await read_body(http)
    if len(raw) > MAX_BODY:
        raise web.HTTPRequestEntityTooLarge(MAX_BODY)
    if request.verb == "patch":
        request.patch = responses.media_type(content_type)
        if request.patch not in bodies.PATCHES:
            return  # refused by the verb, which knows what the kind takes
        read = functools.partial(bodies.read_patch, request.patch, raw)
        request.body, request.duplicates = await bodies.off_loop(read, len(raw))
        return
    if not raw and request.verb in ("delete", "deletecollection"):
        return
    read = functools.partial(bodies.read, content_type, raw)
    request.body, request.duplicates = await bodies.off_loop(read, len(raw))


def _parts_of(lines: list[bytes]) -> Iterator[bytes]:
    """Yield the lines in parts that the connection takes at once."""
    start = size = 0
    for number, line in enumerate(lines):
        size += len(line)
        if size >= _WATCH_PART:
            yield b"".join(lines[start : number + 1])
            start, size = number + 1, 0
    if start < len(lines):
        yield b"".join(lines[start:])


async def _send(http: web.BaseRequest, response: web.StreamResponse, part: bytes) -> None:
    """Send a part of a watch; a client that does not read it in time is left."""
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await response.write(part)
    except TimeoutError:
        if http.transport is not None:
            http.transport.abort()
        raise ConnectionResetError("the watcher does not read") from None


def _with_type(kind: Kind, version: str, item: Object) -> Object:
    return {"kind": kind.kind, "apiVersion": kind.api_version_of(version), **item}
