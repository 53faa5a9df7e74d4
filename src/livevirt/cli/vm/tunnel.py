"""A local connection that is passed on to a guest through the API server."""

from __future__ import annotations

import asyncio
import contextlib
import socket as sockets
from typing import TYPE_CHECKING, Protocol

import click

from livevirt.cli.session import Session

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

PROTOCOL = "plain.kubevirt.io"

_CHUNK = 64 * 1024
_LAUNCH_SECONDS = 60.0  # for a program that was launched to connect
_LINGER_SECONDS = 1.0  # for what the guest still sends after the local side has sent everything


async def opened(session: Session, path: str) -> ClientWebSocketResponse:
    """Open the WebSocket of a subresource; raises ApiError with the server's reason."""
    from livevirt.errors import ApiError

    try:
        return await session.client.websocket(path, protocols=(PROTOCOL,))
    except ApiError:
        # A refused WebSocket has only a status code; a plain request returns the reason.
        await session.client.raw("GET", path)
        raise


class Source(Protocol):
    """Where the local side's bytes come from; an `asyncio.StreamReader` is one."""

    async def read(self, n: int = -1, /) -> bytes:
        """Return some bytes, none at the end."""


class Sink(Protocol):
    """Where the guest's bytes go; an `asyncio.StreamWriter` is one."""

    def write(self, data: bytes, /) -> None:
        """Take bytes."""

    async def drain(self) -> None:
        """Wait until more bytes may be written; raises ConnectionError after the end."""

    def close(self) -> None:
        """Write no more."""


async def relay(socket: ClientWebSocketResponse, reader: Source, writer: Sink) -> str:
    """Pass bytes both ways until either side ends; return why the server ended it, if it said so.

    A WebSocket cannot be closed in one direction only. After the local side has sent everything,
    the guest's answer is passed on until the guest is silent.
    """
    heard = asyncio.Event()
    receiving = asyncio.create_task(_to_local(socket, writer, heard))
    sending = asyncio.create_task(_to_guest(reader, socket, heard))
    try:
        await asyncio.wait({receiving, sending}, return_when=asyncio.FIRST_COMPLETED)
        for task in (receiving, sending):
            if task.done():
                task.result()
        return receiving.result() if receiving.done() else ""
    finally:
        for task in (receiving, sending):
            task.cancel()
        await asyncio.gather(receiving, sending, return_exceptions=True)
        await socket.close()
        writer.close()


async def _to_guest(reader: Source, socket: ClientWebSocketResponse, heard: asyncio.Event) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(_CHUNK):
            await socket.send_bytes(chunk)
    with contextlib.suppress(TimeoutError):
        while True:
            heard.clear()
            async with asyncio.timeout(_LINGER_SECONDS):
                await heard.wait()


async def _to_local(socket: ClientWebSocketResponse, writer: Sink, heard: asyncio.Event) -> str:
    from aiohttp import WSMsgType

    while True:
        message = await socket.receive()
        if message.type is WSMsgType.BINARY:
            heard.set()
            writer.write(message.data)
            try:
                await writer.drain()
            except ConnectionError:
                return ""  # the local side has left
        elif message.type is WSMsgType.CLOSE:
            return message.extra or ""
        else:
            return "the connection to the server was lost"


async def first_client(
    listener: sockets.socket,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the first connection to a local port and listen no longer."""
    listener.setblocking(False)
    with listener:
        client, _ = await asyncio.get_running_loop().sock_accept(listener)
    return await asyncio.open_connection(sock=client)


async def launched(
    command: list[str], listener: sockets.socket, socket: ClientWebSocketResponse
) -> str:
    """Launch a program that connects to a local port, and pass its connection on to the guest.

    The program ends with the stream. Returns why the server ended it, if it said so.
    """
    program = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
    )
    ending = asyncio.create_task(program.wait())
    connecting = asyncio.create_task(first_client(listener))
    try:
        async with asyncio.timeout(_LAUNCH_SECONDS):
            await asyncio.wait({ending, connecting}, return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done():
            raise click.ClickException(f"{command[0]} ended with status {ending.result()}")
        return await relay(socket, *connecting.result())
    except TimeoutError:
        raise click.ClickException(
            f"{command[0]} has not connected within {_LAUNCH_SECONDS:.0f} s"
        ) from None
    finally:
        connecting.cancel()
        if program.returncode is None:
            program.terminate()
        await ending
        await socket.close()
