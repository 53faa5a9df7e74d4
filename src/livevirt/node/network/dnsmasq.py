"""The configuration of dnsmasq: DHCP with an address for each guest, DNS, router advertisements.

Pure. dnsmasq itself watches the directories of leases and names; a file that is removed takes a
SIGHUP.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from livevirt.node.network.links import BRIDGE, UPLINK, Design
from livevirt.node.network.port import GuestPort

DOMAIN = "cluster.local"


@dataclass(frozen=True, slots=True)
class Files:
    """Where dnsmasq's files are."""

    root: Path

    @property
    def configuration(self) -> Path:
        return self.root / "dnsmasq.conf"

    @property
    def leases(self) -> Path:
        return self.root / "leases"

    @property
    def names(self) -> Path:
        return self.root / "names"

    @property
    def log(self) -> Path:
        return self.root / "dnsmasq.log"

    @property
    def lock(self) -> Path:
        """Held by dnsmasq while it lives."""
        return self.root / "lock"

    @property
    def marker(self) -> Path:
        return self.root / "spawned"


def configuration(design: Design, files: Files, servers: Sequence[str], user: str) -> str:
    """Return the configuration file. `servers` resolve what is not ours."""
    block = design.block
    lines = [
        "keep-in-foreground",
        "log-facility=-",
        "pid-file=",
        f"user={user}",
        "conf-dir=",
        "no-hosts",
        "no-resolv",
        "no-poll",
        "leasefile-ro",  # every lease is a file of ours already
        "bind-dynamic",
        f"interface={BRIDGE}",
        f"interface={UPLINK}",
        f"no-dhcp-interface={UPLINK}",
        f"local=/{DOMAIN}/",
        f"domain={DOMAIN}",
        "dhcp-authoritative",
        "dhcp-ignore-names",  # or a guest could take the name of another
        "quiet-dhcp",
        "quiet-dhcp6",
        "quiet-ra",
        "enable-ra",
        f"ra-param={BRIDGE},mtu:{design.mtu},60,1800",
        f"dhcp-range={block.guests4.network_address},static,{block.guests4.netmask},infinite",
        f"dhcp-range={block.guests6.network_address},static,slaac,off-link,64,infinite",
        f"dhcp-option=option:router,{block.gateway4}",
        f"dhcp-option=option:dns-server,{block.gateway4}",
        f"dhcp-option=option:mtu,{design.mtu}",
        f"dhcp-option=option6:dns-server,[{block.gateway6}]",
        f"dhcp-hostsdir={files.leases}",
        f"hostsdir={files.names}",
        *(f"server={each}" for each in servers),
    ]
    return "".join(f"{line}\n" for line in lines)


def arguments(files: Files) -> list[str]:
    """Return the command line, without the program; it is the same for as long as the files are."""
    return [f"--conf-file={files.configuration}"]


def lease(port: GuestPort) -> str:
    """Return the line of a network card's lease."""
    return f"{port.mac},{port.ip4},[{port.ip6}],infinite\n"


def lease_file(port: GuestPort) -> str:
    """Return the name of the lease's file; a guest that migrates has one lease on two ports."""
    return port.mac.replace(":", "")


def reachable(servers: Iterable[str]) -> list[str]:
    """Return the name servers that can be asked from the namespace, which has its own loopback."""
    found = []
    for server in servers:
        try:
            address = ip_address(server.partition("%")[0])
        except ValueError:
            continue
        if not address.is_loopback and not address.is_link_local:
            found.append(server)
    return found


def nameservers(resolv_conf: str) -> list[str]:
    """Return the name servers of a resolv.conf."""
    lines = (line.split() for line in resolv_conf.splitlines())
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
