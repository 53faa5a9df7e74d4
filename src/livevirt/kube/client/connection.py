"""HTTP below the remote client: why a connection failed, and the lines of a watch."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator

import aiohttp
import msgspec

from livevirt.kube.client.errors import Unreachable
from livevirt.kube.objects.request import Object, WatchEvent


def cause(error: Exception) -> str:
    """Return where the connection was to go, if that is known, and what went wrong."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return f"{_place(error)}: {_words(error.certificate_error)}"
        case aiohttp.ClientProxyConnectionError():
            return f"the proxy at {_place(error)}: {_words(error.os_error)}"
        case aiohttp.ClientConnectorError():
            return f"{_place(error)}: {_words(error.os_error)}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answered {error.status} {error.message}".rstrip()
        case aiohttp.ServerTimeoutError():
            return "nothing answers there"
        case _:
            return _words(error)


def _place(error: aiohttp.ClientConnectorError) -> str:
    return f"{error.host} port {error.port}"


def _words(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {error.verify_message}"
        case ssl.SSLError():
            reason = (error.reason or "").replace("_", " ").lower()
            return f"TLS failed: {reason or error}"
        case socket.gaierror():  # its number is no errno
            return error.strerror or str(error)
        case OSError(errno=int(number)) if number:
            return os.strerror(number)
        case _:
            return str(error) or repr(error)


# ---------------------------------------------------------------- watches


class _Line(msgspec.Struct):
    type: str
    object: Object


_decode_line = msgspec.json.Decoder(_Line).decode


async def lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the lines of an answer, however long; aiohttp's own reader has a limit."""
    parts: list[bytes] = []  # of a line whose end has not come yet
    try:
        async for chunk in response.content.iter_any():
            first, *others = chunk.split(b"\n")
            parts.append(first)
            for other in others:
                line = b"".join(parts)
                parts = [other]
                if line:
                    yield line
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"the watch broke off: {error or repr(error)}") from error
    if any(parts):
        yield b"".join(parts)


def event_of(line: bytes) -> WatchEvent:
    try:
        read = _decode_line(line)
    except msgspec.DecodeError as error:
        raise Unreachable(f"the watch broke off in the middle of an event: {error}") from error
    return WatchEvent(read.type, read.object)


def keep_alive(response: aiohttp.ClientResponse) -> None:
    """Have the kernel notice, in about a minute, that the other end of a quiet watch is gone."""
    transport = response.connection.transport if response.connection else None
    sock = transport.get_extra_info("socket") if transport else None
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
