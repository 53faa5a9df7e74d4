"""Connections to ports of guests on the user network, with a QEMU that is played."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.node import dial, process
from livevirt.node.dial import Dialer, DialFailed

_ADD = re.compile(r"hostfwd_add (\S+) (tcp|udp):([\d.]+):(\d+)-:(\d+)")
LISTENING, CLOSED = 7, 8


class Qemu:
    """Forwards ports as QEMU does: it accepts first, and then asks the guest."""

    def __init__(self) -> None:
        self.forwards: dict[str, socket.socket] = {}
        self.lines: list[str] = []
        self.accepted: list[tuple[str, socket.socket]] = []

    async def execute(self, command: str, arguments: dict[str, str]) -> str:
        line = arguments["command-line"]
        if match := _ADD.fullmatch(line):
            self._add(*match.groups())
        elif line.startswith("hostfwd_remove"):
            self.forwards.pop(line.split()[2]).close()
        else:
            self._poll()
            return "Hub -1 (net-net-a):\n" + "".join(f"{each}\n" for each in self.lines)
        return ""

    def _add(self, netdev: str, protocol: str, address: str, port: str, guest: str) -> None:
        assert netdev == "net-net-a"
        kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
        line = socket.socket(type=kind)
        line.setblocking(False)
        line.bind((address, int(port)))
        if protocol == "tcp":
            line.listen()
        self.forwards[f"{protocol}:{address}:{port}"] = line
        self.guest_port = int(guest)

    def _poll(self) -> None:
        for name, line in self.forwards.items():
            _, address, port = name.split(":")
            with contextlib.suppress(BlockingIOError):
                accepted, _ = line.accept()
                if self.guest_port == CLOSED:
                    accepted.close()
                else:
                    self.accepted.append((name, accepted))
                    self.lines.append(
                        f"  TCP[ESTABLISHED]  9  {address}  {port}  10.0.2.15  7  0 0"
                    )


@pytest.fixture
def qemu() -> Qemu:
    return Qemu()


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    found = asyncio.Event()
    monkeypatch.setattr(process, "exited", lambda _: found.wait())
    return found


def a_guest(qemu: Qemu, *nics: str) -> Any:
    machine = SimpleNamespace(nics=[SimpleNamespace(id=name) for name in nics])
    intent = SimpleNamespace(machine=machine)

    class Guest(SimpleNamespace):
        __hash__ = object.__hash__

    return Guest(intent=intent, qmp=lambda: qemu, process=None)


async def test_a_tcp_connection_needs_its_forward_only_until_it_is_open(qemu: Qemu) -> None:
    channel = await Dialer().dial(a_guest(qemu, "net-a"), "tcp", LISTENING)
    assert qemu.forwards == {}
    ((_, line),) = qemu.accepted
    await channel.send(b"question")
    loop = asyncio.get_running_loop()
    line.setblocking(False)
    assert await loop.sock_recv(line, 100) == b"question"
    await loop.sock_sendall(line, b"answer")
    assert await channel.receive() == b"answer"
    line.close()
    assert await channel.receive() is None
    await channel.close()


async def test_each_connection_has_an_address_of_its_own(qemu: Qemu) -> None:
    guest, dialer = a_guest(qemu, "net-a"), Dialer()
    channels = [await dialer.dial(guest, "tcp", LISTENING) for _ in range(5)]
    assert len({name for name, _ in qemu.accepted}) == 5
    for channel in channels:
        await channel.close()
    for _, line in qemu.accepted:
        line.close()


async def test_a_port_that_the_guest_refuses_is_refused(qemu: Qemu) -> None:
    with pytest.raises(DialFailed, match="refused"):
        await Dialer().dial(a_guest(qemu, "net-a"), "tcp", CLOSED)
    assert qemu.forwards == {}


async def test_a_guest_that_never_answers_is_given_up(
    qemu: Qemu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial, "DIAL_SECONDS", 0.1)
    monkeypatch.setattr(qemu, "_poll", lambda: None)
    with pytest.raises(DialFailed):
        await Dialer().dial(a_guest(qemu, "net-a"), "tcp", LISTENING)
    assert qemu.forwards == {}


async def test_a_guest_without_a_network_has_no_ports(qemu: Qemu) -> None:
    with pytest.raises(DialFailed):
        await Dialer().dial(a_guest(qemu), "tcp", LISTENING)


async def test_streams_of_a_udp_port_share_a_forward_until_the_last_ends(
    qemu: Qemu, ended: asyncio.Event
) -> None:
    guest, dialer = a_guest(qemu, "net-a"), Dialer()
    first, second = [await dialer.dial(guest, "udp", 53) for _ in range(2)]
    ((_, line),) = qemu.forwards.items()
    loop = asyncio.get_running_loop()
    for channel, text in ((first, b"one"), (second, b"two")):
        await channel.send(text)
        data, sender = await loop.sock_recvfrom(line, 100)
        assert (data, sender[0]) == (text, "127.0.0.1")  # to which QEMU sends the answer
        await loop.sock_sendto(line, data.upper(), sender)
        assert await channel.receive() == text.upper()
    await first.close()
    assert len(qemu.forwards) == 1
    await second.close()
    assert qemu.forwards == {}


async def test_a_udp_stream_ends_with_the_guest(qemu: Qemu, ended: asyncio.Event) -> None:
    channel = await Dialer().dial(a_guest(qemu, "net-a"), "udp", 53)
    ended.set()
    assert await channel.receive() is None
    await channel.close()
