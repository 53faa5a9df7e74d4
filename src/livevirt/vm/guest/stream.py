"""Streams between a client's WebSocket and a guest, as KubeVirt's clients speak them.

Bytes pass as they are, both ways, and a stream ends with either side. A closing message carries the
reason. KubeVirt's clients take the code of a normal closure as the end of the data, and any other
code as an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from aiohttp import WSCloseCode, WSMsgType, web

from livevirt.errors import BadRequest
from livevirt.files import unix_socket
from livevirt.vm.subresources.call import Call

log = logging.getLogger(__name__)

PROTOCOL = "plain.kubevirt.io"

_CHUNK = 64 * 1024
_CLOSE_SECONDS = 2.0  # for a client to answer our closing message


class Channel(Protocol):
    """The guest's end of a stream."""

    async def receive(self) -> bytes | None:
        """Return the next bytes or datagram of the guest, None at the end."""

    async def send(self, data: bytes) -> None:
        """Pass bytes or a datagram on to the guest; raises ConnectionError once it is closed."""

    async def close(self) -> None:
        """Close the guest's end; what was sent is still delivered."""


class ByteChannel:
    """A channel over a connected socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def of_socket(cls, path: Path, what: str) -> ByteChannel:
        """Connect to a unix socket of QEMU; raises BadRequest if nothing listens there."""
        try:
            return cls(*await unix_socket.open_streams(path))
        except OSError as error:
            # Just started or just ended: for the client both are "not running, ask again".
            raise BadRequest(f"{what} does not answer: {error.strerror}") from error

    async def receive(self) -> bytes | None:
        """Return the next bytes, None at the end."""
        try:
            return await self._reader.read(_CHUNK) or None
        except ConnectionError:
            return None

    async def send(self, data: bytes) -> None:
        """Write bytes, and wait while the guest reads slowly."""
        if self._writer.is_closing():
            raise ConnectionResetError("the guest has closed the connection")
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        """Close the connection once everything is written."""
        self._writer.close()


@dataclass(slots=True)
class Seat:
    """The place of one client at a device that serves one at a time."""

    leave: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)


class Seats:
    """One client at each device; a new client takes over, as in KubeVirt.

    A client that was forgotten somewhere blocks no other.
    """

    def __init__(self) -> None:
        self._taken: dict[Path, Seat] = {}

    @contextlib.asynccontextmanager
    async def at(self, device: Path) -> AsyncIterator[Seat]:
        """Hold the device while the block lasts, or until `leave` of the seat is set."""
        while earlier := self._taken.get(device):
            earlier.leave.set()
            await earlier.left.wait()  # QEMU serves one connection: the old one must be closed
        mine = self._taken[device] = Seat()
        try:
            yield mine
        finally:
            del self._taken[device]
            mine.left.set()


class Closing(NamedTuple):
    """The code and reason with which a WebSocket is closed."""

    code: WSCloseCode
    reason: str


NORMAL = Closing(WSCloseCode.OK, "")


class Endings(NamedTuple):
    """How a stream is closed when the guest ends it, and when another client takes it over."""

    guest_ended: Closing = NORMAL
    taken_over: Closing = NORMAL


def websocket(call: Call, instead: str) -> web.WebSocketResponse:
    """Return the client's WebSocket, not open yet; raises BadRequest if it asked for none."""
    # Compression would only delay keystrokes on a loopback connection.
    client = web.WebSocketResponse(protocols=(PROTOCOL,), compress=False)
    if not client.can_prepare(call.http).ok:
        raise BadRequest(f"this subresource is a WebSocket; connect with: {instead}")
    return client


async def serve(
    call: Call,
    client: web.WebSocketResponse,
    guest: Channel,
    endings: Endings,
    leave: asyncio.Event | None = None,
) -> web.WebSocketResponse:
    """Open the WebSocket and pass data both ways until either side ends or `leave` is set."""
    facts = {"vmi": f"{call.namespace}/{call.name}", "stream": _name(call)}
    try:
        await client.prepare(call.http)
        log.info("stream opened", extra=facts)
        closing = await _relay(client, guest, endings, leave or asyncio.Event())
    finally:
        await guest.close()
    with contextlib.suppress(TimeoutError):  # it may have stopped reading long ago
        async with asyncio.timeout(_CLOSE_SECONDS):
            await client.close(code=closing.code, message=closing.reason.encode())
    log.info("stream closed", extra=facts | {"reason": closing.reason})
    return client


def _name(call: Call) -> str:
    return "/".join(call.http.path.rstrip("/").split(f"/{call.name}/", 1)[1:])


async def _relay(
    client: web.WebSocketResponse, guest: Channel, endings: Endings, leave: asyncio.Event
) -> Closing:
    tasks = {
        asyncio.create_task(_to_client(guest, client)): endings.guest_ended,
        asyncio.create_task(_to_guest(client, guest)): NORMAL,
        asyncio.create_task(leave.wait()): endings.taken_over,
    }
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(closing for task, closing in tasks.items() if task in ended)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _to_client(guest: Channel, client: web.WebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):
        while (chunk := await guest.receive()) is not None:
            await client.send_bytes(chunk)


async def _to_guest(client: web.WebSocketResponse, guest: Channel) -> None:
    async for message in client:
        if message.type is WSMsgType.BINARY:
            data = message.data
        elif message.type is WSMsgType.TEXT:
            data = message.data.encode()
        else:
            continue
        with contextlib.suppress(ConnectionError):  # what the guest has sent before comes first
            await guest.send(data)
