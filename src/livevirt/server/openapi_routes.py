"""The paths of OpenAPI documents."""

from __future__ import annotations

import asyncio

from aiohttp import web

from livevirt.api import openapi
from livevirt.errors import NotAcceptable
from livevirt.server import refusals

_SWAGGER_PROTOBUF = "application/com.github.proto-openapi.spec.v2"


async def answer(http: web.BaseRequest) -> web.StreamResponse:
    """Answer below `/openapi`. Documents are made on first use, away from the event loop."""
    path = http.path.strip("/").removeprefix("openapi/")
    if path == "v2":
        accept = http.headers.get("Accept", "")
        if accept.startswith(_SWAGGER_PROTOBUF) and "json" not in accept:
            raise NotAcceptable("only the following media types are accepted: application/json")
        return _send(http, await asyncio.to_thread(openapi.swagger), immutable=False)
    if path == "v3":
        return _send(http, await asyncio.to_thread(openapi.index), immutable=False)
    if not path.startswith("v3/"):
        raise refusals.no_such_path()
    wanted = http.query.get("hash", "")
    found = await asyncio.to_thread(openapi.document, path.removeprefix("v3/"), wanted)
    if found is None:
        raise refusals.no_such_path()
    if isinstance(found, openapi.Moved):
        return web.Response(status=301, headers={"Location": found.location})
    return _send(http, found, immutable=bool(wanted))


def _send(http: web.BaseRequest, found: openapi.Document, *, immutable: bool) -> web.Response:
    headers = {
        "Content-Type": "application/json",
        "ETag": found.etag,
        "Vary": "Accept-Encoding, Accept",
        "Cache-Control": "public, immutable" if immutable else "no-cache, private",
    }
    if http.headers.get("If-None-Match") == found.etag:
        return web.Response(status=304, headers=headers)
    if "gzip" in http.headers.get("Accept-Encoding", ""):
        return web.Response(body=found.compressed, headers={**headers, "Content-Encoding": "gzip"})
    return web.Response(body=found.plain(), headers=headers)
