"""Limits on connections, so that clients who open many or send slowly do not keep others out.

Clients with a certificate of ours, as kubectl and our own components are, have capacity that
others cannot take: connections without a certificate are limited in total and by their address.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

MOST = 4096  # connections
MOST_WITHOUT_CERTIFICATE = 1024  # of them without a client certificate,
MOST_OF_PEER = 512  # and of those from one address
HANDSHAKE_SECONDS = 10.0  # for TLS
HEADER_SECONDS = 10.0  # from then on until the first request has arrived
IDLE_SECONDS = 75.0  # between two requests; slow headers count as idle
BODY_SECONDS = 30.0  # until the body of a request has arrived
WRITE_SECONDS = 60.0  # until a client has read what was sent


@dataclass(slots=True)
class Connections:
    """Counts the connections that are open."""

    most: int = MOST
    most_without_certificate: int = MOST_WITHOUT_CERTIFICATE
    most_of_peer: int = MOST_OF_PEER
    refused: int = 0
    _certified: int = 0
    _peers: Counter[str] = field(default_factory=Counter)
    _anonymous: int = 0

    @property
    def open(self) -> int:
        """The number of connections."""
        return self._certified + self._anonymous

    def admit(self, peer: str, certified: bool) -> bool:
        """Count a new connection; return False if it is one too many."""
        full = self.open >= self.most
        if not certified:
            full = (
                full
                or self._anonymous >= self.most_without_certificate
                or self._peers[peer] >= self.most_of_peer
            )
        if full:
            self.refused += 1
        elif certified:
            self._certified += 1
        else:
            self._anonymous += 1
            self._peers[peer] += 1
        return not full

    def leave(self, peer: str, certified: bool) -> None:
        """Count a connection out that was admitted."""
        if certified:
            self._certified -= 1
            return
        self._anonymous -= 1
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]


def peer_of(transport: asyncio.BaseTransport) -> str:
    """Return the address that a connection comes from."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if name else ""
