"""Media types a client can read, and small responses written in one go."""

from __future__ import annotations

import asyncio
import functools
from http import HTTPStatus
from typing import NamedTuple

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion10

from livevirt.errors import NotAcceptable
from livevirt.kube.server.connections import WRITE_SECONDS

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_OFFERED = (JSON, YAML)


class Form(NamedTuple):
    """How to write an answer: the media type, and which transformation of the object."""

    media: str = JSON
    as_: str = ""  # Table, PartialObjectMetadata, PartialObjectMetadataList, APIGroupDiscoveryList
    version: str = ""
    group: str = ""

    @property
    def content_type(self) -> str:
        """The Content-Type header of the answer."""
        if self.as_ == "APIGroupDiscoveryList":
            return f"{self.media};g={self.group};v={self.version};as={self.as_}"
        return self.media


PLAIN = Form()


@functools.lru_cache(maxsize=256)
def choose(accept: str, transforms: tuple[str, ...], stream: bool = False) -> Form:
    """Return the first form of an Accept header that we can make, JSON if it names none."""
    if not accept or accept in ("*/*", JSON):
        return PLAIN
    for part in accept.split(","):
        media, *parameters = (text.strip() for text in part.split(";"))
        given = dict(text.partition("=")[::2] for text in parameters)
        if media in ("*/*", "application/*"):
            media = JSON
        if media not in _OFFERED or (stream and media == YAML):
            continue
        as_ = given.get("as", "")
        if as_ and as_ not in transforms:
            continue
        if as_ and given.get("v") not in ("v1", "v1beta1", "v2", "v2beta1"):
            continue
        return Form(media, as_, given.get("v", ""), given.get("g", ""))
    raise NotAcceptable(
        f"only the following media types are accepted: {', '.join((*_OFFERED, PROTOBUF))}"
    )


@functools.lru_cache(maxsize=256)
def media_type(content_type: str) -> str:
    """Return a Content-Type without its parameters, JSON when there is none."""
    return content_type.partition(";")[0].strip().lower() or JSON


LARGEST = 64 * 1024  # bytes; the transport takes that much without asking anybody to wait

_REASONS = {status.value: status.phrase for status in HTTPStatus}


async def until_read(request: web.BaseRequest) -> None:
    """Wait until the client has read enough of what was sent; leave one that does not read."""
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await request.protocol._drain_helper()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client does not read its answers") from None


class Reply(web.StreamResponse):
    """An answer whose body is known and small."""

    def __init__(self, status: int, body: bytes, content_type: str, warnings: list[str]) -> None:
        super().__init__(status=status)
        self._raw = body
        self._type = content_type
        self._warnings = warnings

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send everything; called by aiohttp once the handler has returned."""
        if self._eof_sent:
            return None
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has gone")
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        head = (
            f"HTTP/1.1 {self.status} {_REASONS.get(self.status, '')}\r\n"
            f"Content-Type: {self._type}\r\n"
            "Cache-Control: no-cache, private\r\n"
            f"Content-Length: {len(self._raw)}\r\n"
        )
        for text in self._warnings:
            head += f"Warning: {text}\r\n"
        if not self._keep_alive:
            head += "Connection: close\r\n"
        elif request.version == HttpVersion10:
            head += "Connection: keep-alive\r\n"
        start = f"{head}\r\n".encode()
        transport.write(start if request.method == "HEAD" else start + self._raw)
        self._eof_sent = True
        if request.protocol.writing_paused:
            await until_read(request)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: all has been sent."""
