"""A guest's serial console over a WebSocket.

Nothing is replayed: what the guest wrote before is in its log. A console has one client, and a new
client takes it over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from aiohttp import WSCloseCode, web

from livevirt.errors import BadRequest
from livevirt.vm import kinds
from livevirt.vm.guest import stream
from livevirt.vm.guest.stream import ByteChannel, Closing, Endings, Seats
from livevirt.vm.subresources.call import Call, phase

TAKEN_OVER = "another client took over the console"
GUEST_GONE = "the guest closed the console: it was powered off or has ended"

_ENDINGS = Endings(
    guest_ended=Closing(WSCloseCode.GOING_AWAY, GUEST_GONE),
    taken_over=Closing(WSCloseCode.GOING_AWAY, TAKEN_OVER),
)


class ConsoleEndpoint(Protocol):
    """Knows the consoles of the guests that run here."""

    async def console_socket(self, namespace: str, vmi: str) -> Path:
        """Return the unix socket of a running guest's serial port.

        The caller has checked in the status that the guest runs. Raises BadRequest if it does not
        run here yet, or not any more.
        """


class Consoles:
    """Connects clients to the consoles of guests, one client to each."""

    def __init__(self, endpoint: ConsoleEndpoint) -> None:
        self._endpoint = endpoint
        self._seats = Seats()

    async def verb(self, call: Call) -> web.StreamResponse:
        """Answer `GET …/virtualmachineinstances/NAME/console`.

        While the guest does not run the answer is 400, and clients ask again for as long as it is.
        """
        vmi = await call.instance()
        if phase(vmi) not in ("Scheduled", "Running"):
            raise BadRequest(f"the console of {call.name} opens when its guest runs")
        devices = vmi["spec"]["domain"].get("devices") or {}
        if devices.get("autoattachSerialConsole") is False:
            raise call.refuse(kinds.VMI, "the guest has no serial console")
        client = stream.websocket(call, "virtctl console")
        path = await self._endpoint.console_socket(call.namespace, call.name)
        async with self._seats.at(path) as seat:
            guest = await ByteChannel.of_socket(path, f"the console of {call.name}")
            return await stream.serve(call, client, guest, _ENDINGS, seat.leave)
