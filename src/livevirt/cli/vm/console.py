"""`virtctl console`: a terminal on the guest's serial port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from livevirt.cli import cluster
from livevirt.cli.session import VMI, Session, refusals, seconds, talk
from livevirt.cli.vm.flags import Command

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

PROTOCOL = "plain.kubevirt.io"
ESCAPE = b"\x1d"  # Ctrl+]

_READ = 1024
_ASK_AGAIN_SECONDS = 0.5
_QUIET_SECONDS = 1.0


def _limit(_: click.Context, __: click.Parameter, text: str) -> float:
    # KubeVirt's virtctl takes a number of minutes here, and nothing else.
    return seconds(f"{text}m" if text.isdecimal() else text) or 0.0


@click.command(cls=Command)
@click.argument("vmi", metavar="VMI")
@click.option(
    "--timeout", default="5m", show_default=True, metavar="DURATION", callback=_limit,
    help="How long to wait for the guest to run, such as 90s or 1m30s; a plain number is minutes,"
    " 0 is not at all.",
)  # fmt: skip
@cluster.flags()
def console(vmi: str, timeout: float) -> None:
    """Connect to the serial console of a guest. Ctrl+] leaves.

    A console has one client: a new connection takes it over. Without a terminal, the guest gets
    what comes on standard input, and once that has ended and the guest is silent, it leaves.

    \b
    virtctl console web
    virtctl console web --timeout=90s         # wait so long at most
    echo uname -a | virtctl console web       # for scripts; see also: livevirt exec
    """

    async def work(session: Session) -> str:
        socket = await _opened(session, vmi, timeout)
        click.echo(
            f"Successfully connected to {vmi} console. Press Ctrl+] or Ctrl+5 to exit console.",
            err=True,
        )
        with _raw_terminal():
            return await _relay(socket)

    with refusals("{}"):
        ended = talk(work)
    if ended:
        click.echo(f"\nYou were disconnected from the console: {ended}", err=True)
        raise click.exceptions.Exit(1)


async def _opened(session: Session, vmi: str, limit: float) -> ClientWebSocketResponse:
    """Return the connection, once the guest runs; the server answers 400 until then."""
    from livevirt.errors import ApiError, BadRequest, Timeout

    path, announced = session.path(VMI, vmi, "console"), False
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit
    while True:
        try:
            return await session.client.websocket(path, protocols=(PROTOCOL,))
        except BadRequest:
            if loop.time() >= deadline:
                raise Timeout(
                    f"{vmi} does not run after {limit:g} s; see `kubectl get vmi {vmi}`"
                ) from None
            if not announced:
                click.echo(f"Waiting for {vmi} to run …", err=True)
                announced = True
            await asyncio.sleep(_ASK_AGAIN_SECONDS)
        except ApiError:
            # A refused WebSocket has only a status code; a plain request returns the reason.
            await session.client.raw("GET", path)
            raise


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Pass every key on as it is, until the block ends; does nothing without a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setraw(keyboard)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


async def _relay(socket: ClientWebSocketResponse) -> str:
    """Pass bytes both ways until either side ends; return why, if the server ended it."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    keys = _keys(loop)
    heard = asyncio.Event()
    receiving = asyncio.create_task(_show(socket, heard))
    tasks = {
        receiving,
        asyncio.create_task(_type(socket, keys, heard)),
        asyncio.create_task(stop.wait()),
    }
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
        return receiving.result() if receiving in ended else ""
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await socket.close()


def _keys(loop: asyncio.AbstractEventLoop) -> asyncio.Queue[bytes]:
    """Return a queue of what is typed, in the pieces it came in; an empty piece is the end.

    A thread reads: making a terminal non-blocking would do so for everybody who shares it, our
    own output included.
    """
    keys: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            while True:
                try:
                    piece = os.read(0, _READ)
                except OSError:
                    piece = b""
                loop.call_soon_threadsafe(keys.put_nowait, piece)
                if not piece:
                    return

    threading.Thread(target=read, daemon=True).start()
    return keys


async def _type(
    socket: ClientWebSocketResponse, keys: asyncio.Queue[bytes], heard: asyncio.Event
) -> None:
    """Send what is typed; return at Ctrl+], or at the end of the input when the guest is silent."""
    while piece := await keys.get():
        if piece.startswith(ESCAPE):
            return
        await socket.send_bytes(piece)
    with contextlib.suppress(TimeoutError):
        while True:
            heard.clear()
            async with asyncio.timeout(_QUIET_SECONDS):
                await heard.wait()


async def _show(socket: ClientWebSocketResponse, heard: asyncio.Event) -> str:
    """Write the guest's output to standard output; return why the server closed."""
    from aiohttp import WSMsgType

    while True:
        message = await socket.receive()
        if message.type in (WSMsgType.BINARY, WSMsgType.TEXT):
            data = message.data
            _write(data if isinstance(data, bytes) else data.encode())
            heard.set()
        elif message.type is WSMsgType.CLOSE:
            return message.extra or "the server closed it"
        else:
            return "the connection broke"


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
