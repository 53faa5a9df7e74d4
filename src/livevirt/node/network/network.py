"""The node network of one livevirt: built when the first guest needs it, kept, taken away."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

import msgspec

from livevirt.files import durable, private
from livevirt.node.network import addresses, host_side, links, name_server, namespace, ruleset
from livevirt.node.network.addresses import Block
from livevirt.node.network.dnsmasq import Files
from livevirt.node.network.forwarding import Forward
from livevirt.node.network.links import Design
from livevirt.node.network.name_server import NameServer
from livevirt.node.network.namespace import Inside, NetworkError
from livevirt.node.network.port import GuestPort
from livevirt.node.network.requests import Request
from livevirt.node.network.ruleset import HostRules

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0  # between two looks at whether all of it is still there


class NodeNetwork:
    """The network that all nodes of one machine share.

    `problem` is why there is none, if so: guests are on QEMU's user network then.
    """

    def __init__(self, root: Path, api_port: int) -> None:
        """Keep the network's files in `root`, a directory in the data directory."""
        self.problem = namespace.problem()
        self._root, self._api_port = root, api_port
        self._ports: dict[str, tuple[GuestPort, ...]] = {}  # by pod
        self._instances: dict[str, str] = {}  # the instance of each pod
        self._design: Design | None = None
        self._inside: Inside | None = None
        self._forwards: Sequence[Forward] = ()
        self._names = ""
        self._changed = asyncio.Event()
        self._building = asyncio.Lock()
        self._name_server = NameServer(Files(root), self._changed.set)

    @property
    def ports(self) -> list[GuestPort]:
        """The interfaces that are on the network; both of a guest that migrates."""
        return [port for ports in self._ports.values() for port in ports]

    # ------------------------------------------------------------ guests

    def adopt(self, pod_uid: str, vmi_uid: str, ports: Sequence[GuestPort]) -> None:
        """Hold the ports that a guest has by its start intent."""
        if ports:
            self._ports[pod_uid], self._instances[pod_uid] = tuple(ports), vmi_uid
            self._changed.set()

    async def connect(
        self, pod_uid: str, vmi_uid: str, requests: Sequence[Request]
    ) -> tuple[GuestPort, ...]:
        """Return ports for a guest that is to be started; none if there is no network."""
        if not requests or not await self.ensure():
            return ()
        assert self._design is not None
        block, made = self._design.block, list[GuestPort]()
        beside = [
            port.ip4 for pod, ports in self._ports.items() if pod != pod_uid for port in ports
        ]
        for number, request in enumerate(requests):
            ip4 = addresses.guest4(block, request.mac, [*beside, *(port.ip4 for port in made)])
            if ip4 is None:
                raise NetworkError(f"no address is left in {block.guests4}")
            both = str(ip4), str(addresses.guest6(block, request.mac))
            tap = addresses.tap_name(pod_uid, number)
            made.append(request.port(tap, both, self._design.mtu))
        self.adopt(pod_uid, vmi_uid, made)
        self._name_server.write_leases(self.ports)
        return tuple(made)

    def receive(self, pod_uid: str, vmi_uid: str) -> tuple[GuestPort, ...]:
        """Return ports for a guest that migrates to a pod: with the addresses it has."""
        for other, instance in self._instances.items():
            if instance == vmi_uid and other != pod_uid:
                found = tuple(
                    msgspec.structs.replace(port, tap=addresses.tap_name(pod_uid, number))
                    for number, port in enumerate(self._ports[other])
                )
                self.adopt(pod_uid, vmi_uid, found)
                return found
        return ()

    async def open_taps(self, ports: Sequence[GuestPort]) -> list[int]:
        """Return a descriptor for each port, to be inherited by QEMU and closed by the caller."""
        if not ports:
            return []
        if not await self.ensure():
            raise NetworkError(f"there is no node network: {self.problem}")
        assert self._inside is not None
        assert self._design is not None
        opened: list[int] = []
        try:
            for port in ports:
                make = functools.partial(namespace.open_tap, port.tap)
                opened.append(await self._inside.call(make))
            lines = [line for port in ports for line in links.attach(port.tap, port.mtu)]
            await namespace.batch(lines, self._design.namespace)
        except (OSError, NetworkError) as error:
            for handle in opened:
                os.close(handle)
            raise NetworkError(f"cannot create a tap device: {error}") from error
        return opened

    def publish(self, forwards: Sequence[Forward], names: str) -> None:
        """Forward to guests, and resolve names, by these from now on."""
        if (forwards, names) != (self._forwards, self._names):
            self._forwards, self._names = forwards, names
            self._changed.set()

    def release(self, pod_uid: str) -> None:
        """Give back the ports of a guest that has ended; the kernel has removed the devices."""
        if self._ports.pop(pod_uid, None) is not None:
            del self._instances[pod_uid]
            self._changed.set()

    # ------------------------------------------------------------ the network itself

    async def run(self) -> None:
        """Keep the network as it should be while guests are on it, until cancelled."""
        while True:
            self._changed.clear()
            if self._design is not None and not namespace.exists(self._design.namespace):
                self._forget()
            if self._ports and await self.ensure():
                await self._apply()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._changed.wait()

    async def aclose(self) -> None:
        """Remove the network if no guest is on it; else leave it as it is."""
        self._name_server.leave()
        if not self._ports and not self.problem:
            with contextlib.suppress(NetworkError):
                await remove(self._root)
        self._forget()

    def _forget(self) -> None:
        if self._inside is not None:
            self._inside.close()
        self._design = self._inside = None

    async def ensure(self) -> bool:
        """Build the network if it is not there; return whether it is."""
        async with self._building:
            if self._design is not None:
                return True
            if problem := namespace.problem():
                self.problem = problem
                return False
            try:
                async with namespace.machine_lock():
                    self._design = await self._found_design()
                    await self._build(self._design)
                await self._apply()
            except (NetworkError, OSError) as error:
                self._forget()
                self.problem = str(error)
                log.error("no node network", extra={"error": self.problem})
                return False
            self.problem = ""
            log.info("node network built", extra={"addresses": str(self._design.block.v4)})
            return True

    async def block(self) -> Block | None:
        """Return the addresses of the network, which need not be built yet; None without one."""
        async with self._building:
            if self._design is not None:
                return self._design.block
            if self.problem:
                return None
            found = _kept_block(self._root)
            if found is None:
                async with namespace.machine_lock():
                    found = (await self._found_design()).block
            return found

    async def _found_design(self) -> Design:
        data_dir, name = _data_dir(self._root), _name(self._root)
        routes = await namespace.ask("-4", "route")
        resolvers = [IPv4Network(each) for each in name_server.servers() if ":" not in each]
        taken = [*links.routed(routes, f"{links.PREFIX}{name}"), *resolvers]
        block = _kept_block(self._root)
        if block is None or (not self._ports and any(map(block.v4.overlaps, taken))):
            block = addresses.choose(data_dir, taken)
        if block is None:
            raise NetworkError("the host has routes to all private networks")
        private.folders(self._root)
        durable.write(_block_file(self._root), f"{block.v4} {block.v6}\n".encode())
        uplinks = links.uplinks(routes)
        mtus = [link["mtu"] for link in await namespace.ask("link") if link["ifname"] in uplinks]
        mtu = min([links.MOST_MTU, *mtus])
        return Design(name, data_dir, block, mtu, namespace.host_has_ipv6())

    async def _build(self, design: Design) -> None:
        await host_side.remove_abandoned()
        batches = links.plan(design, await host_side.observe(design))
        await namespace.batch(batches.host_first)
        await namespace.batch(batches.inside, design.namespace)
        await namespace.batch(batches.host_last)
        self._inside = Inside(design.namespace)
        await self._inside.call(lambda: namespace.set_sysctls(links.sysctls()))

    async def _apply(self) -> None:
        """Bring leases, rulesets and dnsmasq up to date."""
        design = self._design
        assert design is not None
        ports = self.ports
        self._name_server.write_leases(ports)
        self._name_server.write_names(self._names)
        await self._name_server.ensure(design)
        inside = ("ip", "netns", "exec", design.namespace)
        await namespace.run(*inside, "nft", "-f", "-", input=ruleset.inside(ports, self._forwards))
        await self._apply_to_host(design, ports)

    async def _apply_to_host(self, design: Design, ports: Sequence[GuestPort]) -> None:
        uplinks = links.uplinks(await namespace.ask("-4", "route"))
        switched = {link for each in (await host_side.switched_on()).values() for link in each}
        ours = [link for link in uplinks if link in switched or not namespace.forwards(link)]
        rules = HostRules(design, self._api_port, ours, ports, self._forwards)
        # The table first: it records what is switched on after it.
        await namespace.run("nft", "-f", "-", input=ruleset.host(rules))
        namespace.set_forwarding([*ours, design.host_link], on=True)
        access = "1" if rules.uses_loopback else "0"
        namespace.set_sysctls({f"ipv4/conf/{design.host_link}/route_localnet": access})


def _block_file(root: Path) -> Path:
    return root / "addresses"


def _kept_block(root: Path) -> Block | None:
    """Return the block that was chosen earlier: guests and Services have its addresses."""
    try:
        v4, v6 = _block_file(root).read_text().split()
        return Block(IPv4Network(v4), IPv6Network(v6))
    except (OSError, ValueError):
        return None


async def remove(root: Path) -> None:
    """Remove the network whose files are in `root`; nothing may use it any more."""
    if _kept_block(root) is not None and not namespace.problem():
        await NameServer(Files(root)).stop()
        await host_side.remove(_name(root))


def _name(root: Path) -> str:
    return addresses.name(_data_dir(root))


def _data_dir(root: Path) -> str:
    return str(root.parent.resolve())
