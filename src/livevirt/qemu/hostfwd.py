"""Ports of the host that QEMU's user network forwards to its guest.

QEMU 7.2 has these commands in its human monitor only. `hostfwd_add` prints nothing on success.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.session import Session

Protocol = Literal["tcp", "udp"]

FORWARD = "HOST_FORWARD"  # the state of a forward itself; its connections have one of TCP's
OPENING = ("CLOSED", "LISTEN", "SYN_SENT", "SYN_RCVD")  # the guest has not accepted yet

_NETDEV = re.compile(r"\S+ \S+ \((?P<netdev>[^)]+)\):")
_SOCKET = re.compile(
    r"\s+(?P<protocol>TCP|UDP)\[(?P<state>[^]]+)\]\s+-?\d+\s+(?P<address>\S+)\s+(?P<port>\d+)\s"
)


@dataclass(frozen=True, slots=True)
class Forward:
    """A port of the host that leads to a port of the guest."""

    netdev: str
    protocol: Protocol
    address: str  # of the host
    port: int  # of the host

    @property
    def rule(self) -> str:
        return f"{self.protocol}:{self.address}:{self.port}"


async def add(qmp: Session, forward: Forward, guest_port: int) -> None:
    """Forward a port to the address that the user network leases to the guest."""
    line = f"hostfwd_add {forward.netdev} {forward.rule}-:{guest_port}"
    if said := await _monitor(qmp, line):
        raise CommandFailed("GenericError", said)


async def remove(qmp: Session, forward: Forward) -> None:
    """Stop forwarding a port; open TCP connections stay open."""
    await _monitor(qmp, f"hostfwd_remove {forward.netdev} {forward.rule}")


async def states(qmp: Session) -> list[tuple[Forward, str]]:
    """Return the forwards and their connections, each with its state."""
    return parse((await _monitor(qmp, "info usernet")).splitlines())


async def forget_forwards(qmp: Session) -> None:
    """Remove the forwards that an earlier session added and had no time to remove."""
    for forward, state in await states(qmp):
        if state == FORWARD:
            await remove(qmp, forward)


def parse(lines: Iterable[str]) -> list[tuple[Forward, str]]:
    """Read `info usernet`: a line for each network, then one for each of its sockets."""
    found: list[tuple[Forward, str]] = []
    netdev = ""
    for line in lines:
        if heading := _NETDEV.match(line):
            netdev = heading["netdev"]
        elif match := _SOCKET.match(line):
            protocol: Protocol = "tcp" if match["protocol"] == "TCP" else "udp"
            forward = Forward(netdev, protocol, match["address"], int(match["port"]))
            found.append((forward, match["state"]))
    return found


async def _monitor(qmp: Session, line: str) -> str:
    said: str = await qmp.execute("human-monitor-command", {"command-line": line})
    return said.strip()
