"""The HTTPS server: a socket on loopback, TLS, and aiohttp around a handler."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage

from livevirt.errors import LivevirtError
from livevirt.kube.server.http import MAX_BODY
from livevirt.kube.server.pki import Pki
from livevirt.kube.server.protocol import Server

_SHUTDOWN_SECONDS = 1.0
Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class ListenError(LivevirtError):
    """The address cannot be had; the message says what to do."""


@asynccontextmanager
async def listening(handle: Handle, keys: Pki, host: str, port: int) -> AsyncIterator[int]:
    """Serve requests while the context lasts; gives the port that was taken."""
    server = Server(handle, request_factory=_request, access_log=None)
    runner = web.ServerRunner(server, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(
            runner, host, port, ssl_context=_tls(keys), backlog=1024, reuse_address=True
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
