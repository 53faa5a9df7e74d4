"""HTTP around the API: reads requests, writes answers, streams watches."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
import yaml
from aiohttp import web
from aiohttp.http import HttpProcessingError

from livevirt.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    InsufficientStorage,
    LivevirtError,
    RequestEntityTooLarge,
    StoreError,
)
from livevirt.kube.control.metrics import Source
from livevirt.kube.objects import refusals
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.registry import Registry
from livevirt.kube.objects.request import ActionPath, Answer, Object, Request, User
from livevirt.kube.server import (
    bodies,
    discovery,
    health,
    objects,
    responses,
    route,
    storage_errors,
    table,
)
from livevirt.kube.server.api import Api, check_door
from livevirt.kube.server.authenticate import ANONYMOUS, Authenticator, check_own_name
from livevirt.kube.server.health import Health
from livevirt.kube.server.metrics import Metrics
from livevirt.kube.server.responses import LARGEST, Form, Reply
from livevirt.kube.server.route import Target

log = logging.getLogger(__name__)

MAX_BODY = 3 * 1024 * 1024
_COMPRESS_FROM = 128 * 1024
_PUBLIC = (*health.PATHS, "/version")
_TRANSFORMS = ("Table", "PartialObjectMetadata")
_LIST_TRANSFORMS = ("Table", "PartialObjectMetadataList")
_JSON_HEADERS = {"Content-Type": responses.JSON, "Cache-Control": "no-cache, private"}

#: Answers a verb of the action group; may take over the connection (console, vnc).
ActionHandler = Callable[
    [ActionPath, web.BaseRequest, User, Any], Awaitable[Answer | web.StreamResponse]
]
#: Answers a subresource by taking over the response (logs).
StreamHandler = Callable[[Request, web.BaseRequest], Awaitable[web.StreamResponse]]


class Front:
    """Turns HTTP requests into API requests and answers back into HTTP."""

    def __init__(
        self,
        api: Api,
        authenticator: Authenticator,
        metrics: Metrics,
    ) -> None:
        self._api = api
        self._authenticator = authenticator
        self._metrics = metrics
        self._registry = api.services.registry
        self._action: ActionHandler = _not_yet
        self._streams: dict[tuple[str, str], StreamHandler] = {}
        self.health = Health(api.services.store)

    def attach(
        self,
        action: ActionHandler,
        streams: dict[tuple[str, str], StreamHandler],
        metrics: Iterable[Source] = (),
    ) -> None:
        """Begin to answer what reaches into guests: verbs on VMs, streams by resource, metrics."""
        self._action, self._streams = action, streams
        self._metrics.sources += metrics

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one HTTP request; every refusal is a Status object."""
        began = time.perf_counter()
        verb, resource = http.method, ""
        try:
            path, _, query = http.raw_path.partition("?")
            user = self._user(http, path)
            target = _target(self._registry, path)
            if target is None:
                return await self._document(http, path, _parts(path))
            options = _options(query)
            if isinstance(target, ActionPath):
                resource = _action_name(self._registry, target)
                return await self._act(http, target, user)
            watch = options.get("watch", "").lower() in ("1", "true")
            verb, resource = route.verb_of(http.method, target, watch), target.kind.resource
            request = Request(verb, target.kind, target.version, user, target.namespace,
                              target.name, target.subresource, options)  # fmt: skip
            return await self._answer(http, request)
        except ApiError as error:
            return _refusal(error)
        except (HttpProcessingError, web.RequestPayloadError) as error:
            return _refusal(refusals.unreadable_body(error))
        except web.HTTPRequestEntityTooLarge:
            return _refusal(RequestEntityTooLarge(f"Request entity too large: limit is {MAX_BODY}"))
        except (asyncio.CancelledError, ConnectionError):
            raise
        except StoreError as error:
            return _refusal(storage_errors.answer(error))
        except LivevirtError as error:
            log.error("request failed", extra={"path": http.path, "error": str(error)})
            return _refusal(ApiError(str(error)))
        except Exception:
            log.exception("request failed", extra={"path": http.path})
            return _refusal(
                ApiError("an internal error occurred; the server's log has the details")
            )
        finally:
            self._metrics.observe(verb, resource, time.perf_counter() - began)

    def _user(self, http: web.BaseRequest, path: str) -> User:
        transport = http.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        user = self._authenticator.user(http.headers.get("Authorization", ""), certificate)
        if user is ANONYMOUS and path not in _PUBLIC:
            raise Forbidden(
                f'forbidden: User "{user.name}" cannot {http.method.lower()} path "{path}"'
            )
        check_own_name(user, http.headers)
        return user

    # ------------------------------------------------------------ resources

    async def _answer(self, http: web.BaseRequest, request: Request) -> web.StreamResponse:
        if request.subresource:
            stream = self._streams.get((request.kind.resource, request.subresource))
            if stream is not None:
                return await stream(request, http)
            check_door(request)  # before the body, which may be anything there
        accept = http.headers.get("Accept", "")
        if request.verb == "watch":
            form = responses.choose(accept, _TRANSFORMS, stream=True)
            return await self._watch(http, request, form)
        form = responses.choose(accept, _LIST_TRANSFORMS if request.verb == "list" else _TRANSFORMS)
        if request.verb in ("create", "update", "patch", "delete", "deletecollection"):
            await _read_body(http, request)
        if request.verb == "create" and not request.subresource:
            self._check_space()
        answer = await self._api.call(request)
        raw = self._encoded(request, answer.body, form)
        return await _response(http, answer, raw, form.content_type)

    def _check_space(self) -> None:
        """Refuse new objects while the disk is full: what is left is for stopping and deleting."""
        for guard in self._api.services.space_guards:
            if why := guard():
                raise InsufficientStorage(why, details=storage_errors.RETRY)

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
                        response = web.StreamResponse(headers=_JSON_HEADERS)
                        response.enable_chunked_encoding()
                        await response.prepare(http)
                    if lines:
                        await response.write(b"".join(lines))
            except ApiError as error:
                if response is None:
                    raise
                line = {"type": "ERROR", "object": error.status()}
                await response.write(objects.encode(line) + b"\n")
            except ConnectionError:
                log.debug("watcher left", extra={"resource": request.kind.resource})
                raise asyncio.CancelledError from None  # nobody is there to be answered
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

    # ------------------------------------------------------------ everything else

    async def _act(
        self, http: web.BaseRequest, action: ActionPath, user: User
    ) -> web.StreamResponse:
        body = None
        if http.method in ("PUT", "POST") and http.can_read_body:
            raw = await http.read()
            if raw:
                body, _ = bodies.read(http.headers.get("Content-Type", ""), raw)
        answer = await self._action(action, http, user, body)
        if isinstance(answer, web.StreamResponse):
            return answer
        raw = answer.body if isinstance(answer.body, bytes) else objects.encode(answer.body)
        return await _response(http, answer, raw, responses.JSON)

    async def _document(
        self, http: web.BaseRequest, path: str, parts: list[str]
    ) -> web.StreamResponse:
        if http.method not in ("GET", "HEAD"):
            raise refusals.method_not_allowed()
        if path in health.PATHS:
            return await self.health.answer(path, http)
        if path == "/metrics":
            text = await self._metrics.text()
            return web.Response(body=text, headers={"Content-Type": self._metrics.content_type})
        accept = http.headers.get("Accept", "")
        if parts and parts[0] == "openapi":
            from livevirt.kube.server.openapi import routes  # much to import for what few ever ask

            return await routes.answer(self._registry, http)
        host = http.headers.get("Host", "")
        form = responses.choose(accept, (discovery.AGGREGATED,))
        found = discovery.answer(self._registry, path, form, host)
        if found is None:
            raise refusals.no_such_path()
        headers = {"Content-Type": found.content_type, "Cache-Control": "public"}
        if found.etag:
            headers["ETag"] = f'"{found.etag}"'
            if http.headers.get("If-None-Match", "").strip('"') == found.etag:
                return web.Response(status=304, headers=headers)
        return web.Response(body=found.body, headers=headers)


async def _not_yet(action: ActionPath, http: web.BaseRequest, user: User, body: Any) -> Answer:
    raise ApiError(
        "the server is starting and cannot reach guests yet; try again in a second",
        code=503,
        reason="ServiceUnavailable",
        details={"retryAfterSeconds": 1},
    )


def _action_name(registry: Registry, action: ActionPath) -> str:
    """Return a known verb's name for the metrics; what anybody may type is no label."""
    name = action.action.partition("/")[0]
    known = registry.actions is not None and registry.actions.has(action.resource, name)
    return name if known else ""


@functools.lru_cache(1024)
def _target(registry: Registry, path: str) -> Target | ActionPath | None:
    """Return what a path names; many requests go to the same few collections."""
    return route.find(registry, _parts(path))


def _parts(path: str) -> list[str]:
    if "%" in path:
        try:
            parts = [unquote(part, errors="strict") for part in path.split("/")]
        except UnicodeDecodeError:
            raise BadRequest("the path is not UTF-8") from None
    else:
        parts = path.split("/")
    return [part for part in parts if part]


def _options(query: str) -> dict[str, str]:
    if not query:
        return {}
    try:
        return dict(parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=64))
    except ValueError as error:
        raise BadRequest(f"the query cannot be read: {error}") from None


async def _read_body(http: web.BaseRequest, request: Request) -> None:
    content_type, content = http.headers.get("Content-Type", ""), http.content
    # A small body comes together with the headers: there are no pieces to gather.
    raw = content.read_nowait() if content.is_eof() else await http.read()
    if len(raw) > MAX_BODY:
        raise web.HTTPRequestEntityTooLarge(MAX_BODY)
    if request.verb == "patch":
        request.patch = responses.media_type(content_type)
        if request.patch not in bodies.PATCHES:
            return  # refused by the verb, which knows what the kind takes
        request.body, request.duplicates = bodies.read_patch(request.patch, raw)
        return
    if not raw and request.verb in ("delete", "deletecollection"):
        return
    request.body, request.duplicates = bodies.read(content_type, raw)


def _with_type(kind: Kind, version: str, item: Object) -> Object:
    return {"kind": kind.kind, "apiVersion": kind.api_version_of(version), **item}


async def _response(
    http: web.BaseRequest, answer: Answer, raw: bytes, content_type: str
) -> web.StreamResponse:
    warnings = [_warning(text) for text in answer.warnings]
    if len(raw) <= LARGEST:
        return Reply(answer.code, raw, content_type, warnings)
    headers = {"Content-Type": content_type, "Cache-Control": "no-cache, private"}
    if len(raw) > _COMPRESS_FROM and "gzip" in http.headers.get("Accept-Encoding", ""):
        # Fast rather than small: clients on this machine are many times faster than the network
        # this was made for. Large answers must not hold up everybody else.
        raw = await asyncio.to_thread(gzip.compress, raw, 1)
        headers["Content-Encoding"] = "gzip"
    response = web.Response(status=answer.code, body=raw, headers=headers)
    for text in warnings:
        response.headers.add("Warning", text)
    return response


def _refusal(error: ApiError) -> web.Response:
    try:
        body = objects.encode(error.status())
    except UnicodeEncodeError:  # it repeats half a character out of the request
        body = json.dumps(error.status()).encode()
    response = web.Response(status=error.status_code, body=body, headers=_JSON_HEADERS)
    for text in error.warnings:
        response.headers.add("Warning", _warning(text))
    retry = error.details.get("retryAfterSeconds")
    if retry:
        response.headers["Retry-After"] = str(retry)
    return response


def _warning(text: str) -> str:
    clean = "".join(c if c.isprintable() else " " for c in text)
    escaped = clean.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'
