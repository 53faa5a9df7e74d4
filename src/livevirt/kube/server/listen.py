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
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage

from livevirt.errors import ApiError, BadRequest, LivevirtError
from livevirt.kube.server import objects
from livevirt.kube.server.actions import MAX_BODY
from livevirt.kube.server.pki import Pki

# ---------------------------------------------------------------- one connection

log = logging.getLogger(__name__)


class Server(web.Server):
    """aiohttp's server, with our own handling of errors on each connection."""

    def __call__(self) -> web.RequestHandler:
        """Return what handles one connection."""
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ()

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
    server = Server(handle, request_factory=_request, access_log=None)
    runner = web.ServerRunner(server, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(
            runner, host, port, ssl_context=context, backlog=1024, reuse_address=True
        )
        try:
            await site.start()
        except OSError as error:
            raise _refused(error, host, port) from None
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


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
