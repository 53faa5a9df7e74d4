"""Small answers written in one go.

aiohttp builds an answer from a header map, a payload object and a stream writer, which costs about
as much as everything else a small request needs. Nearly all of ours are a few kilobytes of JSON
under two fixed headers: head and body are put together here and handed to the transport at once.
Large or streamed answers, where flow control and compression matter, stay aiohttp's own.
"""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion10

LARGEST = 64 * 1024  # bytes; the transport takes that much without asking anybody to wait

_REASONS = {status.value: status.phrase for status in HTTPStatus}


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
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: all has been sent."""
