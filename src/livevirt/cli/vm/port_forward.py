"""`virtctl port-forward`: local ports that lead to ports of a guest."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import click

from livevirt.cli import cluster
from livevirt.cli.session import Session, refusals, talk
from livevirt.cli.vm import target as targets
from livevirt.cli.vm import tunnel
from livevirt.cli.vm.flags import Command
from livevirt.cli.vm.target import Ports, Target
from livevirt.errors import ApiError

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

_CHUNK = 64 * 1024


@click.command("port-forward", cls=Command)
@click.argument("target", metavar="TYPE/NAME[/NAMESPACE]")
@click.argument("ports", metavar="[PROTOCOL/]LOCAL[:TARGET]...", nargs=-1, required=True)
@click.option("--stdio", is_flag=True, help="Forward standard input and output to the one port.")
@click.option(
    "--address", default="127.0.0.1", show_default=True, help="Where to open the local ports."
)
@cluster.flags()
def port_forward(target: str, ports: tuple[str, ...], stdio: bool, address: str) -> None:
    """Forward local ports to ports of a guest, until it is interrupted.

    TYPE is vm or vmi, PROTOCOL tcp or udp. Every connection is authorised by the API server.

    \b
    virtctl port-forward vm/web 8080:80
    virtctl port-forward vmi/web/prod 8080 udp/5353:53
    virtctl port-forward vm/web 22 --stdio       # as ProxyCommand of ssh
    """
    guest = targets.parse(target)
    wanted = [targets.parse_ports(each) for each in ports]
    if stdio and len(wanted) != 1:
        raise click.UsageError("--stdio forwards one port")

    async def work(session: Session) -> str:
        forwarder = Forwarder(session, guest)
        if stdio:
            return await forwarder.stdio(wanted[0])
        return await forwarder.serve(wanted, address)

    with refusals(f"can't access {guest.kind}/{guest.name}: {{}}"):
        ended = talk(work)
    if ended:
        click.echo(f"The connection was closed: {ended}", err=True)
        raise click.exceptions.Exit(1)


@dataclass(frozen=True, slots=True)
class Forwarder:
    """Connects local sockets to ports of one guest."""

    session: Session
    guest: Target

    async def serve(self, wanted: list[Ports], address: str) -> str:
        """Forward ports until it is interrupted."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        async with contextlib.AsyncExitStack() as stack:
            for ports in wanted:
                if ports.protocol == "udp":
                    transport, _ = await loop.create_datagram_endpoint(
                        functools.partial(_Datagrams, self, ports), (address, ports.local)
                    )
                    stack.callback(transport.close)
                    chosen = transport.get_extra_info("sockname")[1]
                else:
                    connected = functools.partial(self._connected, ports)
                    server = await asyncio.start_server(
                        connected, address, ports.local, backlog=512
                    )
                    stack.callback(server.close)
                    chosen = server.sockets[0].getsockname()[1]
                where = f"{ports.protocol} {address}:{chosen}"
                click.echo(f"forwarding {where} to {ports.remote}", err=True)
            await stop.wait()
        return ""

    async def stdio(self, ports: Ports) -> str:
        """Forward standard input and output; return why the server ended it, if it said so."""
        socket = await self.opened(ports)
        return await tunnel.relay(socket, Stdin(), Stdout())

    async def opened(self, ports: Ports) -> ClientWebSocketResponse:
        """Open a stream to a port of the guest; raises ApiError."""
        session = self.session
        if self.guest.namespace:
            session = Session(session.client, self.guest.namespace, session.timeout)
        verb = f"portforward/{ports.remote}/{ports.protocol}"
        return await tunnel.opened(
            session, session.path(self.guest.resource, self.guest.name, verb)
        )

    async def _connected(
        self, ports: Ports, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            socket = await self.opened(ports)
        except ApiError as error:
            self.complain(ports, error)
            writer.close()
            return
        with contextlib.suppress(ConnectionError):
            await tunnel.relay(socket, reader, writer)

    def complain(self, ports: Ports, error: ApiError) -> None:
        """Print why a connection was not forwarded."""
        where = f"{self.guest.kind}/{self.guest.name}:{ports.remote}"
        click.echo(f"can't access {where}: {error.message}", err=True)


class _Datagrams(asyncio.DatagramProtocol):
    """A local UDP port; each sender has a stream of its own."""

    def __init__(self, forwarder: Forwarder, ports: Ports) -> None:
        self._forwarder, self._ports = forwarder, ports
        self._waiting: dict[tuple[str, int], asyncio.Queue[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket."""
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, sender: tuple[str, int]) -> None:
        """Pass a datagram on; the first one of a sender opens a stream."""
        waiting = self._waiting.get(sender)
        if waiting is None:
            waiting = self._waiting[sender] = asyncio.Queue()
            task = asyncio.get_running_loop().create_task(self._stream(sender, waiting))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        waiting.put_nowait(data)

    async def _stream(self, sender: tuple[str, int], waiting: asyncio.Queue[bytes]) -> None:
        try:
            socket = await self._forwarder.opened(self._ports)
            sending = asyncio.create_task(_send(waiting, socket))
            try:
                async for message in socket:
                    if isinstance(message.data, bytes) and self._transport is not None:
                        self._transport.sendto(message.data, sender)
            finally:
                sending.cancel()
                await socket.close()
        except ApiError as error:
            self._forwarder.complain(self._ports, error)
        finally:
            del self._waiting[sender]


async def _send(waiting: asyncio.Queue[bytes], socket: ClientWebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            await socket.send_bytes(await waiting.get())


class Stdin:
    """Standard input, whatever it is.

    A thread reads: to make a terminal non-blocking would do so for everybody who shares it.
    """

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(4)
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            while True:
                try:
                    piece = os.read(0, _CHUNK)
                except OSError:
                    piece = b""
                asyncio.run_coroutine_threadsafe(self._pieces.put(piece), loop).result()
                if not piece:
                    return

    async def read(self, _: int = -1, /) -> bytes:
        """Return the next piece, nothing at the end."""
        return await self._pieces.get()


class Stdout:
    """Standard output, whatever it is."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes, /) -> None:
        """Take bytes, written by the next `drain`."""
        self._data += data

    async def drain(self) -> None:
        """Write what was taken."""
        while self._data:
            written = await asyncio.to_thread(os.write, 1, bytes(self._data))
            del self._data[:written]

    def close(self) -> None:
        """Leave standard output open."""
