"""HTTP around a group of actions: reads requests, writes answers, serves discovery and metrics."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

from aiohttp import web
from aiohttp.http import HttpProcessingError

from livevirt.errors import ApiError, BadRequest, LivevirtError, RequestEntityTooLarge, StoreError
from livevirt.kube.objects import refusals
from livevirt.kube.objects.registry import Registry
from livevirt.kube.objects.request import ActionPath, Answer, Request, User
from livevirt.kube.server import (
    bodies,
    discovery,
    health,
    objects,
    origin,
    responses,
    route,
    storage_errors,
)
from livevirt.kube.server.connections import BODY_SECONDS
from livevirt.kube.server.health import Health
from livevirt.kube.server.metrics import Metrics
from livevirt.kube.server.responses import LARGEST, Reply
from livevirt.kube.server.route import Target

log = logging.getLogger(__name__)

MAX_BODY = 3 * 1024 * 1024
PUBLIC = (*health.PATHS, "/version")
JSON_HEADERS = {"Content-Type": responses.JSON, "Cache-Control": "no-cache, private"}
MOST_WARNINGS, WARNING_LENGTH, WARNINGS_BYTES = 64, 1024, 4096  # as kube-apiserver, in all 4 KiB
_COMPRESS_FROM = 128 * 1024

#: Answers a verb of the action group; may take over the connection (console, vnc).
ActionHandler = Callable[
    [ActionPath, web.BaseRequest, User, Any], Awaitable[Answer | web.StreamResponse]
]


class Guard(Protocol):
    """Decides who may use a server."""

    async def authenticate(self, http: web.BaseRequest, path: str) -> User:
        """Return the user of a request; raises Unauthorized, or Forbidden for anonymous users."""

    async def authorize(
        self, user: User, http: web.BaseRequest, target: Target | ActionPath | None
    ) -> None:
        """Raise Forbidden unless the user may send this request."""


class ActionFront:
    """Serves a group of actions over HTTP, with discovery, OpenAPI, health checks and metrics.

    Resources are left to subclasses.
    """

    def __init__(
        self,
        registry: Registry,
        guard: Guard,
        metrics: Metrics,
        action: ActionHandler | None = None,
    ) -> None:
        self._registry = registry
        self._guard = guard
        self._metrics = metrics
        self._action = action or _not_yet
        self.health = Health()
        #: Names of this server beside the usual ones; None behind a kube-apiserver, which checks.
        self.names: frozenset[str] | None = None

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one HTTP request; every refusal is a Status object."""
        began = time.perf_counter()
        labels = [http.method, ""]  # of the metrics: the verb and the resource
        try:
            path, _, query = http.raw_path.partition("?")
            if self.names is not None:
                origin.check(http.headers, self.names)
            user = await self._guard.authenticate(http, path)
            target = _target(self._registry, path)
            await self._guard.authorize(user, http, target)
            if target is None:
                return await self._document(http, path, _parts(path))
            options = _options(query)
            if isinstance(target, ActionPath):
                labels[1] = _action_name(self._registry, target)
                return await self._act(http, target, user)
            watch = options.get("watch", "").lower() in ("1", "true")
            verb = route.verb_of(http.method, target, watch)
            labels[:] = verb, target.kind.resource
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
            self._metrics.observe(labels[0], labels[1], time.perf_counter() - began)

    async def _answer(self, http: web.BaseRequest, request: Request) -> web.StreamResponse:
        raise refusals.no_such_path()

    async def _act(
        self, http: web.BaseRequest, action: ActionPath, user: User
    ) -> web.StreamResponse:
        body = None
        if http.method in ("PUT", "POST") and http.can_read_body:
            raw = await read_body(http)
            if raw:
                kind = http.headers.get("Content-Type", "")
                read = functools.partial(bodies.read, kind, raw)
                body, _ = await bodies.off_loop(read, len(raw))
        answer = await self._action(action, http, user, body)
        if isinstance(answer, web.StreamResponse):
            return answer
        raw = answer.body if isinstance(answer.body, bytes) else objects.encode(answer.body)
        return await response(http, answer, raw, responses.JSON)

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


async def read_body(http: web.BaseRequest) -> bytes:
    """Return the body of a request; raises RequestTimeout if it does not come in time."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await http.read()
    except TimeoutError:
        raise ApiError(
            f"the body did not arrive within {BODY_SECONDS:.0f} s", code=408, reason="Timeout"
        ) from None


async def response(
    http: web.BaseRequest, answer: Answer, raw: bytes, content_type: str
) -> web.StreamResponse:
    warnings = _warnings(answer.warnings)
    if len(raw) <= LARGEST:
        return Reply(answer.code, raw, content_type, warnings)
    headers = {"Content-Type": content_type, "Cache-Control": "no-cache, private"}
    if len(raw) > _COMPRESS_FROM and "gzip" in http.headers.get("Accept-Encoding", ""):
        # Fast rather than small: clients on this machine are many times faster than the network
        # this was made for. Large answers must not block other requests.
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
    response = web.Response(status=error.status_code, body=body, headers=JSON_HEADERS)
    for text in _warnings(error.warnings):
        response.headers.add("Warning", text)
    retry = error.details.get("retryAfterSeconds")
    if retry:
        response.headers["Retry-After"] = str(retry)
    return response


def _warnings(texts: Iterable[str]) -> list[str]:
    """Return the values of Warning headers; those beyond the limits are counted and left out."""
    found: list[str] = []
    left, omitted = WARNINGS_BYTES, 0
    for text in texts:
        value = _warning(
            text if len(text) <= WARNING_LENGTH else f"{text[: WARNING_LENGTH - 3]}..."
        )
        left -= len(value.encode())
        if left < 0 or len(found) >= MOST_WARNINGS:
            omitted += 1
        else:
            found.append(value)
    if omitted:
        found.append(_warning(f"{omitted} more warnings are not shown"))
    return found


def _warning(text: str) -> str:
    clean = "".join(c if c.isprintable() else " " for c in text)
    escaped = clean.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'
