"""Which addresses a livevirt uses, and which of them each guest gets. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

BLOCK_PREFIX = 18
_RANGES = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
_FIRST_GUEST = 10  # the addresses below are for the network itself


@dataclass(frozen=True, slots=True)
class Block:
    """The addresses of one livevirt: half for guests, a quarter for Services, some for its links.

    `v4` is a /18 and `v6` a /48.
    """

    v4: IPv4Network
    v6: IPv6Network

    @property
    def guests4(self) -> IPv4Network:
        return next(self.v4.subnets(1))

    @property
    def guests6(self) -> IPv6Network:
        return _subnet6(self.v6, 1)

    @property
    def services4(self) -> IPv4Network:
        return list(self.v4.subnets(2))[2]

    @property
    def services6(self) -> IPv6Network:
        return next(_subnet6(self.v6, 2).subnets(new_prefix=112))

    @property
    def gateway4(self) -> IPv4Address:
        """The bridge's address: the guests' router and name server."""
        return self.guests4[1]

    @property
    def gateway6(self) -> IPv6Address:
        return self.guests6[1]

    @property
    def link4(self) -> tuple[IPv4Address, IPv4Address]:
        """The two ends of the link to the host, the host's first."""
        return self.v4[-3], self.v4[-2]

    @property
    def link6(self) -> tuple[IPv6Address, IPv6Address]:
        link = _subnet6(self.v6, 0xFFFF)
        return link[1], link[2]


def _subnet6(block: IPv6Network, number: int) -> IPv6Network:
    return IPv6Network((int(block.network_address) | number << 64, 64))


def choose(seed: str, taken: Collection[IPv4Network]) -> Block | None:
    """Return the block for a livevirt, clear of the networks that the host has routes to.

    The same seed gets the same block while that is free. None if every block overlaps.
    """
    digest = hashlib.sha256(seed.encode()).digest()
    v6 = IPv6Network((bytes([0xFD]) + digest[:5] + bytes(10), 48))
    for candidate in _candidates(int.from_bytes(digest[5:9])):
        if not any(candidate.overlaps(other) for other in taken):
            return Block(candidate, v6)
    return None


def _candidates(start: int) -> Iterator[IPv4Network]:
    """Yield every block of the private ranges, each range from a place of its own."""
    for whole in _RANGES:
        count = 1 << (BLOCK_PREFIX - whole.prefixlen)
        size = 1 << (32 - BLOCK_PREFIX)
        for number in range(count):
            first = int(whole.network_address) + (start + number) % count * size
            yield IPv4Network((first, BLOCK_PREFIX))


def guest4(block: Block, mac: str, taken: Iterable[str]) -> IPv4Address | None:
    """Return the IPv4 address of a network card; the same one as before, while it is free.

    None if all are taken.
    """
    used = set(taken)
    network = block.guests4
    count = network.num_addresses - _FIRST_GUEST - 1  # the last one is for broadcasts
    start = int.from_bytes(hashlib.sha256(mac.encode()).digest()[:4])
    for number in range(count):
        address = network[_FIRST_GUEST + (start + number) % count]
        if str(address) not in used:
            return address
    return None


def guest6(block: Block, mac: str) -> IPv6Address:
    """Return the IPv6 address that a network card gets by DHCPv6, and SLAAC with EUI-64."""
    parts = bytes.fromhex(mac.replace(":", ""))
    interface = bytes([parts[0] ^ 2]) + parts[1:3] + b"\xff\xfe" + parts[3:]
    return block.guests6[int.from_bytes(interface)]


def name(data_dir: str) -> str:
    """Return the short name of the links and tables of one data directory."""
    return hashlib.sha256(data_dir.encode()).hexdigest()[:8]


def tap_name(pod_uid: str, number: int) -> str:
    """Return the name of the tap device of a pod's interface; the kernel allows 15 characters."""
    return f"t{hashlib.sha256(pod_uid.encode()).hexdigest()[:10]}{number}"
