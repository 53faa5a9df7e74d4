"""The paths of OpenAPI documents."""

from __future__ import annotations

import asyncio

from aiohttp import web

from livevirt.errors import NotAcceptable
from livevirt.kube.objects import refusals
from livevirt.kube.objects.registry import Registry
from livevirt.kube.server.openapi import documents
from livevirt.kube.server.responses import JSON

_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
# What kubectl asks for. `@` may not stand in a media type, so it is answered with the other name.
_PROTOBUF_ASKED = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_SWAGGERS = {
    JSON: JSON,
    "application/*": JSON,
    "*/*": JSON,
    _PROTOBUF: _PROTOBUF,
    _PROTOBUF_ASKED: _PROTOBUF,
}


async def answer(registry: Registry, http: web.BaseRequest) -> web.StreamResponse:
    """Answer below `/openapi`. Documents are made on first use, away from the event loop."""
    path = http.path.strip("/").removeprefix("openapi/")
    if path == "v2":
        media = swagger_form(http.headers.get("Accept", ""))
        make = documents.swagger if media == JSON else documents.swagger_protobuf
        return _send(http, await asyncio.to_thread(make, registry), immutable=False, media=media)
    if path == "v3":
        return _send(http, await asyncio.to_thread(documents.index, registry), immutable=False)
    if not path.startswith("v3/"):
        raise refusals.no_such_path()
    wanted = http.query.get("hash", "")
    found = await asyncio.to_thread(documents.document, registry, path.removeprefix("v3/"), wanted)
    if found is None:
        raise refusals.no_such_path()
    if isinstance(found, documents.Moved):
        return web.Response(status=301, headers={"Location": found.location})
    return _send(http, found, immutable=bool(wanted))


def swagger_form(accept: str) -> str:
    """Return the media type in which to send `/openapi/v2`: the first named that there is."""
    for part in (accept or "*/*").split(","):
        if form := _SWAGGERS.get(part.partition(";")[0].strip()):
            return form
    raise NotAcceptable(f"only the following media types are accepted: {JSON}, {_PROTOBUF}")


def _send(
    http: web.BaseRequest, found: documents.Document, *, immutable: bool, media: str = JSON
) -> web.Response:
    headers = {
        "Content-Type": media,
        "ETag": found.etag,
        "Vary": "Accept-Encoding, Accept",
        "Cache-Control": "public, immutable" if immutable else "no-cache, private",
    }
    if http.headers.get("If-None-Match") == found.etag:
        return web.Response(status=304, headers=headers)
    if "gzip" in http.headers.get("Accept-Encoding", ""):
        return web.Response(body=found.compressed, headers={**headers, "Content-Encoding": "gzip"})
    return web.Response(body=found.plain(), headers=headers)
