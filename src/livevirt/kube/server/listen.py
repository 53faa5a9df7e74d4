"""The HTTPS server: a socket on loopback, TLS, and aiohttp around a handler.

What is not valid HTTP is refused in Kubernetes' own form too.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage

from livevirt.errors import ApiError, BadRequest, LivevirtError
from livevirt.kube.server import objects
from livevirt.kube.server.actions import MAX_BODY
from livevirt.kube.server.connections import (
    HANDSHAKE_SECONDS,
    HEADER_SECONDS,
    IDLE_SECONDS,
    Connections,
    peer_of,
)
from livevirt.kube.server.pki import Pki

# ---------------------------------------------------------------- one connection

log = logging.getLogger(__name__)


class Server(web.Server):
    """aiohttp's server, with our own handling of errors on each connection."""

    limits: Connections

    def __call__(self) -> web.RequestHandler:
        """Return what handles one connection."""
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ("_certified", "_connections", "_header_timer", "_peer")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or close a connection that is one too many."""
        manager = self._manager
        assert isinstance(manager, Server)
        self._peer = peer_of(transport)
        self._certified = bool(transport.get_extra_info("peercert"))
        self._connections: Connections | None = None
        self._header_timer: asyncio.TimerHandle | None = None
        if not manager.limits.admit(self._peer, self._certified):
            cast(asyncio.Transport, transport).abort()
            return
        self._connections = manager.limits
        super().connection_made(transport)
        self._header_timer = self._loop.call_later(HEADER_SECONDS, self._check_header)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End; one that was not admitted has not begun."""
        if self._connections is None:
            return
        self._connections.leave(self._peer, self._certified)
        self._connections = None
        if self._header_timer is not None:
            self._header_timer.cancel()
        super().connection_lost(exc)

    def _check_header(self) -> None:
        """Close a connection on which no request has arrived yet."""
        self._header_timer = None
        if self._request_count == 0 and self.transport is not None:
            self.transport.abort()

    def log_exception(self, *args: Any, **more: Any) -> None:
        """Log a failure of ours; a body that cannot be read is the client's and was answered."""
        if not isinstance(more.get("exc_info"), HttpProcessingError | web.RequestPayloadError):
            super().log_exception(*args, **more)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be parsed, or what the handler failed to answer; then close."""
        if request.writer.output_size > 0:
            raise ConnectionError("part of an answer has been sent already") from exc
        error = _refusal(status, exc)
        response = web.Response(
            status=error.status_code,
            body=objects.encode(error.status()),
            headers={"Content-Type": "application/json"},
        )
        response.force_close()
        return response


def _refusal(status: int, cause: BaseException | None) -> ApiError:
    if status < 500:
        # What came is not repeated: it may be binary, long, or a secret at the wrong place.
        why = type(cause).__name__ if cause is not None else "malformed"
        log.debug("request is no HTTP", extra={"error": why})
        return BadRequest(f"the request is not valid HTTP ({why})")
    log.error("request failed", exc_info=cause)
    return ApiError("an internal error occurred; the server's log has the details")


# ---------------------------------------------------------------- the socket

_SHUTDOWN_SECONDS = 1.0
Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class ListenError(LivevirtError):
    """The address is not available; the message names what to do."""


def listening(handle: Handle, keys: Pki, host: str, port: int) -> AbstractAsyncContextManager[int]:
    """Serve requests with the server's own certificate; gives the port that was taken."""
    return listening_with(handle, _tls(keys), host, port)


@asynccontextmanager
async def listening_with(
    handle: Handle, context: ssl.SSLContext, host: str, port: int
) -> AsyncIterator[int]:
    """Serve requests while the context lasts; gives the port that was taken."""
    server = Server(
        handle, request_factory=_request, access_log=None, keepalive_timeout=IDLE_SECONDS
    )
    server.limits = Connections()
    loop = asyncio.get_running_loop()
    try:
        socket = await loop.create_server(
            server, host, port, ssl=context, backlog=1024, reuse_address=True,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
        )  # fmt: skip
    except OSError as error:
        raise _refused(error, host, port) from None
    try:
        yield int(socket.sockets[0].getsockname()[1])
    finally:
        socket.close()
        server.pre_shutdown()
        await server.shutdown(_SHUTDOWN_SECONDS)


def _refused(error: OSError, host: str, port: int) -> ListenError:
    if error.errno == errno.EADDRINUSE:
        return ListenError(
            f"port {port} of {host} is in use by another program."
            " Choose a free one: --listen 127.0.0.1:0"
        )
    return ListenError(f"cannot listen on {host}:{port}: {error}")


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """Make aiohttp's request object, with our limit on the size of bodies."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)


def _tls(keys: Pki) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(keys.server)
    context.load_verify_locations(keys.ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
