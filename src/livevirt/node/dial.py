"""Connections to the ports of guests, whatever network a guest is on."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from livevirt.errors import LivevirtError
from livevirt.node import process
from livevirt.node.guest import Guest
from livevirt.node.process import Process
from livevirt.qemu import hostfwd
from livevirt.qemu.errors import QmpError
from livevirt.qemu.hostfwd import Forward, Protocol
from livevirt.qemu.session import Session
from livevirt.vm.guest.stream import ByteChannel, Channel

DIAL_SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1  # between looks at a connection that is being opened
_WAITING_DATAGRAMS = 256  # of a client that reads slowly; more are dropped, as networks do


class DialFailed(LivevirtError):
    """The port of the guest could not be connected to."""


class Dialer:
    """Connects to the ports of guests."""

    def __init__(self) -> None:
        self._user_network = UserNetwork()

    async def dial(self, guest: Guest, protocol: Protocol, port: int) -> Channel:
        """Connect to a port of a guest; raises DialFailed.

        The first interface is used, as in KubeVirt.
        """
        if not guest.intent.machine.nics:
            raise DialFailed("the guest has no network interface")
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                return await self._user_network.dial(guest, protocol, port)
        except TimeoutError:
            why = f"{protocol} port {port} did not answer within {DIAL_SECONDS:.0f} s"
            raise DialFailed(why) from None
        except QmpError as error:
            raise DialFailed(str(error)) from error


@dataclass(slots=True)
class _SharedForward:
    """A forwarded UDP port and the number of streams that use it."""

    forward: Forward
    streams: int = 0


class UserNetwork:
    """Reaches guests on QEMU's user network, through forwarded ports of loopback.

    Each forward has an address of its own, chosen at random out of 127.0.0.0/8, so that QEMU's list
    of connections shows the state of every single one. The forward of a TCP connection is removed
    as soon as the guest has accepted the connection.
    """

    def __init__(self) -> None:
        self._udp: dict[tuple[Guest, int], _SharedForward] = {}
        self._udp_changes = asyncio.Lock()

    async def dial(self, guest: Guest, protocol: Protocol, port: int) -> Channel:
        """Connect to a port of a guest; raises DialFailed or QmpError."""
        netdev = f"net-{guest.intent.machine.nics[0].id}"
        if protocol == "udp":
            return await self._dial_udp(guest, netdev, port)
        return await _dial_tcp(guest, netdev, port)

    async def _dial_udp(self, guest: Guest, netdev: str, port: int) -> Channel:
        # QEMU sends the guest's answers through the first forward of a port: all streams share it.
        async with self._udp_changes:
            shared = self._udp.get((guest, port))
            if shared is None:
                shared = _SharedForward(_unused(netdev, "udp"))
                await hostfwd.add(guest.qmp(), shared.forward, port)
                self._udp[guest, port] = shared
            shared.streams += 1
        try:
            _, channel = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: DatagramChannel(guest.process, lambda: self._release_udp(guest, port)),
                local_addr=("127.0.0.1", 0),  # to which QEMU sends what a guest sends to the host
                remote_addr=(shared.forward.address, shared.forward.port),
                family=socket.AF_INET,
            )
        except BaseException:
            await self._release_udp(guest, port)
            raise
        return channel

    async def _release_udp(self, guest: Guest, port: int) -> None:
        async with self._udp_changes:
            shared = self._udp[guest, port]
            shared.streams -= 1
            if shared.streams == 0:
                del self._udp[guest, port]
                with contextlib.suppress(QmpError):  # the guest has ended
                    await hostfwd.remove(guest.qmp(), shared.forward)


def _unused(netdev: str, protocol: Protocol) -> Forward:
    address = ".".join(str(random.randint(1, 254)) for _ in range(3))
    return Forward(netdev, protocol, f"127.{address}", random.randint(20_000, 59_999))


async def _dial_tcp(guest: Guest, netdev: str, port: int) -> Channel:
    qmp, forward = guest.qmp(), _unused(netdev, "tcp")
    line = socket.socket()
    line.setblocking(False)
    await hostfwd.add(qmp, forward, port)
    try:
        address = (forward.address, forward.port)
        await asyncio.get_running_loop().sock_connect(line, address)
        await _accepted(qmp, forward, line)
    except BaseException as error:
        line.close()
        if isinstance(error, OSError) and not isinstance(error, TimeoutError):
            raise DialFailed(f"tcp port {port}: {error.strerror or error}") from error
        raise
    finally:
        with contextlib.suppress(QmpError):
            await hostfwd.remove(qmp, forward)
    return ByteChannel(*await asyncio.open_connection(sock=line))


async def _accepted(qmp: Session, forward: Forward, line: socket.socket) -> None:
    """Wait for the guest to accept the connection; raises ConnectionRefusedError.

    QEMU accepts a connection before it connects to the guest, and closes it if the guest refuses.
    """
    pause = _FIRST_PAUSE
    while True:
        known = [state for each, state in await hostfwd.states(qmp) if each == forward]
        if any(state not in (hostfwd.FORWARD, *hostfwd.OPENING) for state in known):
            return
        with contextlib.suppress(BlockingIOError):
            if line.recv(1, socket.MSG_PEEK):
                return  # the guest has answered and closed meanwhile
            raise ConnectionRefusedError("connection refused")
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


class DatagramChannel(asyncio.DatagramProtocol):
    """The datagrams between one client and a port of a guest; the channel ends with the guest."""

    def __init__(self, qemu: Process, release: Callable[[], Awaitable[None]]) -> None:
        self._qemu, self._release = qemu, release
        self._received: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING_DATAGRAMS)
        self._transport: asyncio.DatagramTransport | None = None
        self._watch = asyncio.create_task(self._end_with_guest())

    async def _end_with_guest(self) -> None:
        await process.exited(self._qemu)
        await self._received.put(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket."""
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, _: object) -> None:
        """Keep a datagram of the guest until the client reads it."""
        with contextlib.suppress(asyncio.QueueFull):
            self._received.put_nowait(data)

    async def receive(self) -> bytes | None:
        """Return the next datagram, None once the guest has ended."""
        return await self._received.get()

    async def send(self, data: bytes) -> None:
        """Send a datagram."""
        assert self._transport is not None
        self._transport.sendto(data)

    async def close(self) -> None:
        """Close the socket; the last stream of a port removes the forward."""
        assert self._transport is not None
        self._watch.cancel()
        self._transport.close()
        await self._release()
