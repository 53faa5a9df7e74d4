"""Which interfaces of an instance go on the node network, and the machine that has them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from livevirt.kube.objects.request import Object
from livevirt.node.domain import NIC_PREFIX
from livevirt.node.network.port import GuestPort, OpenPort
from livevirt.qemu.machine import FIRST_TAP, Machine, Nic

#: On a VM's template: the guest may connect to the host and to the API.
HOST_ACCESS = "livevirt.io/allow-host-access"
_BINDINGS = ("masquerade", "bridge")


@dataclass(frozen=True, slots=True)
class Request:
    """An interface that is to be on the node network."""

    nic: str
    mac: str
    only: tuple[OpenPort, ...] = ()
    host_access: bool = False

    def port(self, tap: str, addresses: tuple[str, str], mtu: int) -> GuestPort:
        """Return the port that fulfils it."""
        return GuestPort(
            nic=self.nic,
            tap=tap,
            mac=self.mac,
            ip4=addresses[0],
            ip6=addresses[1],
            mtu=mtu,
            only=self.only,
            host_access=self.host_access,
        )


def requested(vmi: Object, machine: Machine) -> list[Request]:
    """Return the interfaces on the pod's network whose binding the node network serves."""
    spec = vmi["spec"]
    allowed = (vmi["metadata"].get("annotations") or {}).get(HOST_ACCESS) == "true"
    pod = {each["name"] for each in spec.get("networks") or () if each.get("pod") is not None}
    listed = (spec["domain"].get("devices") or {}).get("interfaces") or ()
    by_id = {NIC_PREFIX + each["name"]: each for each in listed}
    return [
        Request(nic.id, nic.mac, tuple(_open(by_id[nic.id])), allowed)
        for nic in machine.nics
        if nic.id.removeprefix(NIC_PREFIX) in pod and _served(by_id[nic.id])
    ]


def _served(interface: Object) -> bool:
    return any(interface.get(each) is not None for each in _BINDINGS)


def _open(interface: Object) -> Iterator[OpenPort]:
    """Yield the ports that others may connect to, of a masqueraded interface that lists some."""
    if interface.get("masquerade") is not None:
        for each in interface.get("ports") or ():
            yield OpenPort((each.get("protocol") or "TCP").lower(), int(each["port"]))


def connected(machine: Machine, ports: Sequence[GuestPort]) -> Machine:
    """Return the machine with the interfaces that have ports on tap devices."""
    order = {port.nic: (number, port) for number, port in enumerate(ports)}
    return replace(machine, nics=tuple(_connected(nic, order) for nic in machine.nics))


def _connected(nic: Nic, order: dict[str, tuple[int, GuestPort]]) -> Nic:
    if nic.id not in order:
        return nic
    number, port = order[nic.id]
    return replace(nic, mode="tap", fd=FIRST_TAP + number, mtu=port.mtu)
