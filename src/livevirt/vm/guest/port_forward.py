"""A port of a guest over a WebSocket: `…/NAME/portforward/PORT[/PROTOCOL]`, of VMs and instances.

Each connection is a WebSocket of its own. Bytes of TCP pass as they come; a datagram of UDP is one
message.
"""

from __future__ import annotations

from typing import Literal, Protocol

from aiohttp import web

from livevirt.errors import BadRequest
from livevirt.kube.objects import conditions, refusals
from livevirt.vm import kinds
from livevirt.vm.guest import stream
from livevirt.vm.guest.stream import Channel, Endings
from livevirt.vm.subresources.call import Call, Verb, phase

TransportProtocol = Literal["tcp", "udp"]


class PortEndpoint(Protocol):
    """Connects to the ports of the guests that run here."""

    async def dial(
        self, namespace: str, vmi: str, protocol: TransportProtocol, port: int
    ) -> Channel:
        """Connect to a port of a running guest.

        The caller has checked in the status that the guest runs. Raises BadRequest if it does not
        run here any more, ApiError with the reason if the port cannot be connected to.
        """


def verb(endpoint: PortEndpoint, *, of_vm: bool) -> Verb:
    """Return the verb that connects a client to a port of a guest."""

    async def connect(call: Call) -> web.StreamResponse:
        port, protocol = _asked(call.rest)
        if of_vm:
            await call.vm()
        vmi = await call.instance()
        if phase(vmi) != "Running":
            raise BadRequest(f"the ports of {call.name} open when its guest runs")
        if conditions.is_true((vmi.get("status") or {}).get("conditions"), "Paused"):
            raise call.refuse(kinds.VMI, "VMI is paused")
        guest = await endpoint.dial(call.namespace, call.name, protocol, port)
        try:
            client = stream.websocket(call, "virtctl port-forward")
        except BadRequest:
            await guest.close()
            raise
        return await stream.serve(call, client, guest, Endings())

    return connect


def _asked(path: str) -> tuple[int, TransportProtocol]:
    port, _, protocol = path.partition("/")
    if not port.isdecimal() or not port.isascii() or not 0 < int(port[:6]) < 65536:
        raise BadRequest(f"{port!r} is no port: use a number from 1 to 65535")
    match protocol.lower():
        case "" | "tcp":
            return int(port), "tcp"
        case "udp":
            return int(port), "udp"
    if "/" in protocol:
        raise refusals.no_such_path()
    raise BadRequest(f"{protocol!r} is no protocol: use tcp or udp")
