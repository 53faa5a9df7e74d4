"""A guest's connection to the node network, as it is recorded in the start intent."""

from __future__ import annotations

import msgspec


class OpenPort(msgspec.Struct, frozen=True, order=True):
    """A port that others may connect to, of an interface that lists such ports."""

    protocol: str  # tcp or udp
    port: int


class GuestPort(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One interface of a guest on the node network."""

    nic: str  # the id of the network card
    tap: str
    mac: str
    ip4: str
    ip6: str
    mtu: int
    only: tuple[OpenPort, ...] = ()  # what others may connect to; everything if it is empty
    host_access: bool = False  # it may connect to the host and to the API

    @property
    def addresses(self) -> tuple[str, str]:
        return self.ip4, self.ip6
