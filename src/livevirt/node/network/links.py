"""The namespace, its links, addresses and routes: what `ip` must be asked to do. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from livevirt.node.network import addresses
from livevirt.node.network.addresses import Block

PREFIX = "lv-"  # of the host's ends of all livevirts' links
BRIDGE, UPLINK = "br0", "host0"  # inside the namespace
MOST_MTU = 1500


def namespace_name(name: str) -> str:
    """Return the name of the namespace of a livevirt's network."""
    return f"livevirt-{name}"


@dataclass(frozen=True, slots=True)
class Design:
    """What the network of one livevirt should be."""

    name: str  # of its data directory
    data_dir: str
    block: Block
    mtu: int = MOST_MTU
    host_ipv6: bool = True  # whether the host has IPv6 at all

    @property
    def namespace(self) -> str:
        return namespace_name(self.name)

    @property
    def host_link(self) -> str:
        return f"{PREFIX}{self.name}"

    @property
    def bridge_mac(self) -> str:
        """The gateway's hardware address, which guests remember when the bridge is rebuilt."""
        parts = hashlib.sha256(f"bridge {self.name}".encode()).digest()[:5]
        return ":".join(f"{each:02x}" for each in b"\x02" + parts)


@dataclass(frozen=True, slots=True)
class Observed:
    """What there is of a network."""

    namespace: bool = False
    inside: frozenset[str] = frozenset()  # links in the namespace
    host: frozenset[str] = frozenset()  # links of the host


@dataclass(frozen=True, slots=True)
class Batches:
    """Lines for `ip -batch`, in the order in which they must run."""

    host_first: tuple[str, ...]
    inside: tuple[str, ...]
    host_last: tuple[str, ...]


def plan(design: Design, seen: Observed) -> Batches:
    """Return the commands that build what is missing; all of them may be repeated."""
    first = [] if seen.namespace else [f"netns add {design.namespace}"]
    both_ends = design.host_link in seen.host and UPLINK in seen.inside
    if design.host_link in seen.host and not both_ends:
        first.append(f"link del {design.host_link}")  # its other end was in another namespace
    if not both_ends:
        peer = f"peer name {UPLINK} mtu {design.mtu} netns {design.namespace}"
        first.append(f"link add {design.host_link} mtu {design.mtu} type veth {peer}")
    return Batches(tuple(first), tuple(_inside(design, seen)), tuple(_host(design)))


def _inside(design: Design, seen: Observed) -> Iterable[str]:
    block = design.block
    if BRIDGE not in seen.inside:
        kind = "type bridge mcast_snooping 0 forward_delay 0"
        yield f"link add {BRIDGE} address {design.bridge_mac} mtu {design.mtu} {kind}"
    yield "link set lo up"
    yield f"addr replace {block.gateway4}/{block.guests4.prefixlen} dev {BRIDGE}"
    yield f"addr replace {block.gateway6}/64 dev {BRIDGE} nodad"
    yield f"link set {BRIDGE} up"
    yield f"addr replace {block.link4[1]}/30 dev {UPLINK}"
    yield f"addr replace {block.link6[1]}/64 dev {UPLINK} nodad"
    yield f"link set {UPLINK} up"
    yield f"route replace default via {block.link4[0]}"
    yield f"route replace ::/0 via {block.link6[0]}"
    # Packets for a Service without endpoints must not bounce between host and namespace.
    yield f"route replace unreachable {block.services4}"
    yield f"route replace unreachable {block.services6}"


def _host(design: Design) -> Iterable[str]:
    block, link = design.block, design.host_link
    yield f'link set {link} alias "{design.data_dir}"'
    yield f"addr replace {block.link4[0]}/30 dev {link}"
    yield f"link set {link} up"
    yield f"route replace {block.v4} via {block.link4[1]} dev {link}"
    if design.host_ipv6:
        yield f"addr replace {block.link6[0]}/64 dev {link} nodad"
        yield f"route replace {block.v6} via {block.link6[1]} dev {link}"


def attach(tap: str, mtu: int) -> tuple[str, ...]:
    """Return the commands that connect a tap device to the bridge.

    Guests are isolated from each other on the bridge, so that the traffic between them is routed
    and passes the rules.
    """
    return (
        f"link set {tap} mtu {mtu} master {BRIDGE} up",
        f"link set {tap} type bridge_slave isolated on",
    )


def sysctls() -> dict[str, str]:
    """Return the settings of the namespace, by path below /proc/sys/net.

    With br_netfilter, which other software may have loaded, the kernel would translate addresses
    before it routes and send the frame along the bridge, where guests are isolated.
    """
    return {
        **{f"bridge/bridge-nf-call-{each}": "0" for each in ("iptables", "ip6tables", "arptables")},
        "ipv4/ip_forward": "1",
        "ipv6/conf/all/forwarding": "1",
        f"ipv4/conf/{BRIDGE}/proxy_arp_pvlan": "1",  # answer for guests that the bridge isolates
        "ipv4/conf/all/send_redirects": "0",
        f"ipv4/conf/{BRIDGE}/send_redirects": "0",
        f"ipv6/conf/{BRIDGE}/accept_ra": "0",
        f"ipv6/conf/{UPLINK}/accept_ra": "0",
    }


def routed(routes: Iterable[dict[str, Any]], own: str) -> list[IPv4Network]:
    """Return the networks that `ip -j route` lists, except the default route and our own link's."""
    return [
        IPv4Network(route["dst"])
        for route in routes
        if route["dst"] != "default" and route.get("dev") != own
    ]


def uplinks(routes: Iterable[dict[str, Any]]) -> list[str]:
    """Return the links of the default routes that `ip -j route` lists."""
    found = [route.get("dev") or "" for route in routes if route["dst"] == "default"]
    return sorted({each for each in found if each})


def owners(found: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Return the data directory of each livevirt's network by name, from `ip -j link`.

    One whose alias is not the directory that its name is derived from is left out.
    """
    listed = {link["ifname"]: link.get("ifalias") or "" for link in found}
    return {
        ifname.removeprefix(PREFIX): alias
        for ifname, alias in listed.items()
        if alias and ifname == f"{PREFIX}{addresses.name(alias)}"
    }
