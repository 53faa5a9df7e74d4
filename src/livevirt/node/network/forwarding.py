"""What Services mean for the node network: where to forward, and names to resolve. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from livevirt.kube.objects.request import Object, status_of
from livevirt.node.network.dnsmasq import DOMAIN

SERVICE_NAME = "kubernetes.io/service-name"
HEADLESS = "None"


@dataclass(frozen=True, slots=True)
class Backend:
    """A port of a guest behind a Service."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Forward:
    """One port of a Service at one of its addresses."""

    address: str
    protocol: str
    port: int
    backends: tuple[Backend, ...]
    node_port: int = 0  # of the host's loopback, if it has one
    sticky: bool = False  # the same client goes to the same guest

    @property
    def version(self) -> int:
        return 6 if ":" in self.address else 4


def forwards(services: Iterable[Object], slices: Iterable[Object]) -> list[Forward]:
    """Return what to forward; only ready endpoints count."""
    found = [each for each in slices]
    made = (forward for service in services for forward in _of_service(service, found))
    return sorted(made, key=lambda each: (each.address, each.protocol, each.port))


def _of_service(service: Object, slices: Iterable[Object]) -> Iterator[Forward]:
    spec = service["spec"]
    own = list(_slices_of(service, slices))
    for address in spec.get("clusterIPs") or ():
        if address == HEADLESS:
            continue
        family = "IPv6" if ":" in address else "IPv4"
        for port in spec.get("ports") or ():
            backends = (
                Backend(each, target)
                for slice_ in own
                if slice_.get("addressType") == family
                for target in _targets(slice_, port)
                for each in _ready(slice_)
            )
            yield Forward(
                address,
                port["protocol"].lower(),
                port["port"],
                tuple(dict.fromkeys(backends)),
                port.get("nodePort") or 0,
                spec.get("sessionAffinity") == "ClientIP",
            )


def _slices_of(service: Object, slices: Iterable[Object]) -> Iterator[Object]:
    metadata = service["metadata"]
    for each in slices:
        labels = each["metadata"].get("labels") or {}
        if (each["metadata"]["namespace"], labels.get(SERVICE_NAME)) == (
            metadata["namespace"],
            metadata["name"],
        ):
            yield each


def _targets(slice_: Object, port: Object) -> Iterator[int]:
    for each in slice_.get("ports") or ():
        same = (each.get("name") or "") == (port.get("name") or "")
        if same and each.get("protocol", "TCP") == port["protocol"] and each.get("port"):
            yield each["port"]


def _ready(slice_: Object) -> Iterator[str]:
    for each in slice_.get("endpoints") or ():
        if (each.get("conditions") or {}).get("ready", True):
            yield from each["addresses"]


def names(services: Iterable[Object], slices: Iterable[Object], instances: Iterable[Object]) -> str:
    """Return the lines of a hosts file.

    A Service has its addresses, a headless one those of its ready endpoints, an instance its own.
    """
    found, lines = [each for each in slices], list[str]()
    for service in services:
        metadata = service["metadata"]
        name = f"{metadata['name']}.{metadata['namespace']}.svc.{DOMAIN}"
        listed = service["spec"].get("clusterIPs") or ()
        if HEADLESS in listed or service["spec"].get("clusterIP") == HEADLESS:
            for slice_ in _slices_of(service, found):
                lines += _of_headless(slice_, name)
        else:
            lines += [f"{address} {name}" for address in listed]
    for vmi in instances:
        metadata = vmi["metadata"]
        name = f"{metadata['name']}.{metadata['namespace']}.vm.{DOMAIN}"
        first = (status_of(vmi).get("interfaces") or [{}])[0]
        if first.get("podInterfaceName"):  # it is on the node network
            lines += [f"{address} {name}" for address in first["ipAddresses"][:2]]
    return "".join(f"{line}\n" for line in sorted(set(lines)))


def _of_headless(slice_: Object, name: str) -> Iterator[str]:
    for each in slice_.get("endpoints") or ():
        if (each.get("conditions") or {}).get("ready", True):
            for address in each["addresses"]:
                yield f"{address} {name}"
                if each.get("hostname"):
                    yield f"{address} {each['hostname']}.{name}"
