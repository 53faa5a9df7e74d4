"""The nftables rulesets, as text for `nft -f`, which replaces each as a whole. Pure.

Guests are isolated on the bridge, so everything they send passes the forward chain of the
namespace, and what leaves the machine also passes that of the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from livevirt.node.network.forwarding import Forward
from livevirt.node.network.links import BRIDGE, PREFIX, UPLINK, Design
from livevirt.node.network.port import GuestPort

TABLE = "livevirt"
_LOOPBACK = "127.0.0.1"


def inside(ports: Sequence[GuestPort], forwards: Sequence[Forward] = ()) -> str:
    """Return the ruleset of the namespace."""
    routed = (*_routed(ports), *_forwarded(forwards))
    tables = (*_replaced("bridge", TABLE, _bridge(ports)), *_replaced("inet", TABLE, routed))
    return "\n".join(tables)


def _replaced(family: str, table: str, body: Iterable[str]) -> Iterator[str]:
    """Yield a table that takes the place of the one before in one transaction."""
    yield f"table {family} {table}"
    yield f"delete table {family} {table}"
    yield f"table {family} {table} {{"
    yield from body
    yield "}"


def named_set(name: str, type_: str, elements: Iterable[str]) -> str:
    """Return the declaration of a set; one without elements must not list any."""
    listed = ", ".join(dict.fromkeys(elements))
    filled = f"; elements = {{ {listed} }}" if listed else ""
    return f"set {name} {{ type {type_}{filled}; }}"


def chain(name: str, hook: str, *rules: str, policy: str = "accept") -> str:
    """Return a chain; `hook` is empty for one that is jumped to."""
    head = f"type {hook}; policy {policy}; " if hook else ""
    return f"chain {name} {{ {head}{''.join(f'{rule}; ' for rule in rules)}}}"


# ---------------------------------------------------------------- frames of guests


def _bridge(ports: Sequence[GuestPort]) -> Iterator[str]:
    """Yield the rules by which a guest sends with its own addresses only."""
    cards = [f'"{port.tap}" . {port.mac}' for port in ports]
    yield named_set("cards", "ifname . ether_addr", cards)
    yield named_set(
        "sources4",
        "ifname . ether_addr . ipv4_addr",
        (f"{card} . {port.ip4}" for card, port in zip(cards, ports, strict=True)),
    )
    yield named_set(
        "sources6",
        "ifname . ipv6_addr",
        (f'"{port.tap}" . {port.ip6}' for port in ports),
    )
    yield named_set("guests6", "ipv6_addr", (port.ip6 for port in ports))
    yield chain(
        "prerouting",
        "filter hook prerouting priority 0",
        'iifname != "t*" accept',
        "iifname . ether saddr != @cards drop",
        "ether type 0x8035 accept",  # RARP: a guest that has migrated announces itself
        "arp saddr ip 0.0.0.0 accept",
        "iifname . ether saddr . arp saddr ip @sources4 accept",
        "ip saddr 0.0.0.0 udp dport 67 accept",
        "iifname . ether saddr . ip saddr @sources4 accept",
        "iifname . ip6 saddr @sources6 accept",
        "ip6 saddr @guests6 drop",  # another guest's; temporary addresses of its own are fine
        "ether type ip6 accept",
        "drop",
    )


# ---------------------------------------------------------------- packets


def _routed(ports: Sequence[GuestPort]) -> Iterator[str]:
    limited = [port for port in ports if port.only]
    yield named_set("limited4", "ipv4_addr", (port.ip4 for port in limited))
    yield named_set("limited6", "ipv6_addr", (port.ip6 for port in limited))
    for version in (4, 6):
        opened = (
            f"{port.addresses[version == 6]} . {each.protocol} . {each.port}"
            for port in limited
            for each in port.only
        )
        yield named_set(f"open{version}", f"ipv{version}_addr . inet_proto . inet_service", opened)
    yield chain(
        "input",
        "filter hook input priority 0",
        "ct state established,related accept",
        'iifname "lo" accept',
        "meta l4proto { icmp, ipv6-icmp } accept",
        f'iifname "{BRIDGE}" udp dport {{ 53, 67, 547 }} accept',
        "meta l4proto { tcp, udp } th dport 53 accept",
        policy="drop",
    )
    # Guests cannot reach each other directly, as a redirect would have them do.
    yield chain("output", "filter hook output priority 0", "icmpv6 type nd-redirect drop")
    yield chain(
        "forward",
        "filter hook forward priority 0",
        "ct state established,related accept",
        "ct state invalid drop",
        f'oifname "{BRIDGE}" jump to_guests',
        f'iifname "{BRIDGE}" oifname "{UPLINK}" accept',
        policy="drop",
    )
    yield chain(
        "to_guests",
        "",
        "ip daddr . meta l4proto . th dport @open4 accept",
        "ip6 daddr . meta l4proto . th dport @open6 accept",
        "ip daddr @limited4 meta l4proto { tcp, udp, sctp } drop",
        "ip6 daddr @limited6 meta l4proto { tcp, udp, sctp } drop",
        "accept",
    )


# ---------------------------------------------------------------- Services


def _forwarded(forwards: Sequence[Forward]) -> Iterator[str]:
    """Yield the rules that send what is for a Service to one of its guests."""
    yield chain(
        "services",
        "nat hook prerouting priority dstnat",
        *(_rule(each) for each in forwards if each.backends),
    )
    own = {backend.address for each in forwards for backend in each.backends}
    yield chain(
        "hairpin",
        "nat hook postrouting priority srcnat",
        # A guest that reaches itself by a Service must be answered by way of the router.
        *(
            f"{_ip(address)} saddr {address} {_ip(address)} daddr {address} masquerade"
            for address in sorted(own)
        ),
    )


def _ip(address: str) -> str:
    return "ip6" if ":" in address else "ip"


def _rule(forward: Forward) -> str:
    ip = _ip(forward.address)
    match = f"{ip} daddr {forward.address} {forward.protocol} dport {forward.port}"
    count = len(forward.backends)
    choice = f"jhash {ip} saddr mod {count}" if forward.sticky else f"numgen random mod {count}"
    places = ", ".join(
        f"{number} : {backend.address} . {backend.port}"
        for number, backend in enumerate(forward.backends)
    )
    return f"{match} dnat {ip} to {choice} map {{ {places} }}"


# ---------------------------------------------------------------- the host


@dataclass(frozen=True, slots=True)
class HostRules:
    """What the host's ruleset for one livevirt depends on."""

    design: Design
    api_port: int
    uplinks: Sequence[str] = ()  # links that some livevirt has made the host forward from
    ports: Sequence[GuestPort] = field(default_factory=tuple)
    forwards: Sequence[Forward] = field(default_factory=tuple)

    @property
    def node_ports(self) -> list[Forward]:
        """What is reached at a port of the host's loopback too."""
        return [each for each in self.forwards if each.node_port and each.version == 4]

    @property
    def uses_loopback(self) -> bool:
        """Whether packets from or to the host's loopback cross the link."""
        return bool(self.node_ports) or any(port.host_access for port in self.ports)


def table_name(name: str) -> str:
    """Return the name of the host's table for the network of that name."""
    return f"{TABLE}_{name}"


def host(rules: HostRules) -> str:
    """Return the ruleset of the host: guests reach out, and nothing reaches them or the host.

    The API listens on the host's loopback; guests that may reach it find it at the host's end of
    the link.
    """
    return "\n".join(_replaced("inet", table_name(rules.design.name), _host(rules)))


def _host(rules: HostRules) -> Iterator[str]:
    link, design = rules.design.host_link, rules.design
    allowed = [port.ip4 for port in rules.ports if port.host_access]
    yield named_set("uplinks", "ifname", (f'"{each}"' for each in rules.uplinks))
    yield named_set("allowed", "ipv4_addr", allowed)
    api = f"ip daddr {design.block.link4[0]} tcp dport {rules.api_port}"
    yield chain(
        "prerouting",
        "nat hook prerouting priority dstnat",
        f'iifname "{link}" ip saddr @allowed {api} dnat ip to {_LOOPBACK}:{rules.api_port}',
    )
    yield chain(
        "input",
        "filter hook input priority 0",
        f'iifname != "{link}" accept',
        "ip daddr 127.0.0.0/8 ct status dnat accept",
        "ip daddr 127.0.0.0/8 drop",
        "ct state established,related accept",
        "meta l4proto { icmp, ipv6-icmp } accept",
        "ip saddr @allowed accept",
        "drop",
    )
    yield chain(
        "forward",
        "filter hook forward priority 0",
        f'oifname "{link}" ct state established,related accept',
        f'oifname "{link}" drop',
        f'iifname "{link}" oifname "{PREFIX}*" drop',  # guests of another livevirt
        f'iifname "{link}" ip daddr 169.254.0.0/16 drop',  # metadata of the cloud the host is in
        f'iifname @uplinks oifname != "{PREFIX}*" drop',  # the host was no router before
    )
    yield chain(
        "output",
        "nat hook output priority -100",
        *(
            f"ip daddr {_LOOPBACK} {each.protocol} dport {each.node_port}"
            f" dnat ip to {each.address}:{each.port}"
            for each in rules.node_ports
        ),
    )
    yield chain(
        "postrouting",
        "nat hook postrouting priority srcnat",
        f'iifname "{link}" oifname != "{link}" masquerade',
        f'oifname "{link}" ip saddr 127.0.0.0/8 snat ip to {design.block.link4[0]}',
    )
