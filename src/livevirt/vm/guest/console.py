"""A guest's serial console over a WebSocket, as KubeVirt's clients speak it.

Bytes pass as they are, both ways, and nothing is replayed: what the guest wrote before is in its
log. A console has one client. A new client takes it over, as in KubeVirt: a terminal that was
forgotten somewhere blocks no other, and it gets the reason for its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aiohttp import WSCloseCode, WSMsgType, web

from livevirt.errors import BadRequest
from livevirt.files import unix_socket
from livevirt.vm import kinds
from livevirt.vm.subresources.call import Call, phase

log = logging.getLogger(__name__)

PROTOCOL = "plain.kubevirt.io"
TAKEN_OVER = "another client took over the console"
GUEST_GONE = "the guest closed the console: it was powered off or has ended"

_CHUNK = 64 * 1024
_CLOSE_SECONDS = 2.0  # for a client to answer our goodbye


class ConsoleEndpoint(Protocol):
    """Knows the consoles of the guests that run here."""

    async def console_socket(self, namespace: str, vmi: str) -> Path:
        """Return the unix socket of a running guest's serial port.

        The caller has checked in the status that the guest runs. Raises BadRequest if it does not
        run here yet, or not any more.
        """


@dataclass(slots=True)
class _Holder:
    """The current client of a console."""

    leave: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class Consoles:
    """Connects clients to the consoles of guests, one client to each."""

    def __init__(self, endpoint: ConsoleEndpoint) -> None:
        self._endpoint = endpoint
        self._holders: dict[Path, _Holder] = {}

    async def verb(self, call: Call) -> web.StreamResponse:
        """Answer `GET …/virtualmachineinstances/NAME/console`.

        While the guest does not run the answer is 400, and clients ask again for as long as it is.
        """
        vmi = await call.instance()
        if phase(vmi) not in ("Scheduled", "Running"):
            raise BadRequest(f"the console of {call.name} opens when its guest runs")
        devices = vmi["spec"]["domain"].get("devices") or {}
        if devices.get("autoattachSerialConsole") is False:
            raise call.refuse(kinds.VMI, "the guest has no serial console")
        # Compression would only delay keystrokes on a loopback connection.
        client = web.WebSocketResponse(protocols=(PROTOCOL,), compress=False)
        if not client.can_prepare(call.http).ok:
            raise BadRequest("a console is a WebSocket; connect with: virtctl console")
        path = await self._endpoint.console_socket(call.namespace, call.name)
        facts = {"vmi": f"{call.namespace}/{call.name}"}
        holder = await self._take(path)
        try:
            guest = await _connected(path, call.name)
            try:
                await client.prepare(call.http)
                log.info("console opened", extra=facts)
                reason = await _relay(client, *guest, holder.leave)
            finally:
                guest[1].close()
        finally:
            self._release(path, holder)
        with contextlib.suppress(TimeoutError):  # it may have stopped reading long ago
            async with asyncio.timeout(_CLOSE_SECONDS):
                await client.close(code=WSCloseCode.GOING_AWAY, message=reason.encode())
        log.info("console closed", extra=facts | {"reason": reason or "the client left"})
        return client

    async def _take(self, path: Path) -> _Holder:
        while holder := self._holders.get(path):
            holder.leave.set()
            await holder.gone.wait()  # QEMU serves one connection: the old one must be closed
        mine = self._holders[path] = _Holder()
        return mine

    def _release(self, path: Path, holder: _Holder) -> None:
        del self._holders[path]
        holder.gone.set()


async def _connected(path: Path, vmi: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await unix_socket.open_streams(path)
    except OSError as error:
        # Just started or just ended: for the client both are "not running, ask again".
        raise BadRequest(f"the console of {vmi} does not answer: {error.strerror}") from error


async def _relay(
    client: web.WebSocketResponse,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    leave: asyncio.Event,
) -> str:
    """Pass bytes both ways; return why it ended, empty when the client left."""
    tasks = {
        asyncio.create_task(_to_client(reader, client)): GUEST_GONE,
        asyncio.create_task(_to_guest(client, writer)): "",
        asyncio.create_task(leave.wait()): TAKEN_OVER,
    }
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(reason for task, reason in tasks.items() if task in ended)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _to_client(reader: asyncio.StreamReader, client: web.WebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(_CHUNK):
            await client.send_bytes(chunk)


async def _to_guest(client: web.WebSocketResponse, writer: asyncio.StreamWriter) -> None:
    async for message in client:
        if message.type is WSMsgType.BINARY:
            writer.write(message.data)
        elif message.type is WSMsgType.TEXT:
            writer.write(message.data.encode())
        try:
            await writer.drain()
        except ConnectionError:
            return  # the reader finds out why
