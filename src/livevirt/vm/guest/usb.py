"""USB devices of clients in a guest: the usbredir protocol over a WebSocket.

A guest whose spec has `clientPassthrough` has four slots. A client takes a free one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from aiohttp import web

from livevirt.errors import ApiError, BadRequest
from livevirt.vm import kinds
from livevirt.vm.guest import stream
from livevirt.vm.guest.stream import ByteChannel, Endings
from livevirt.vm.subresources.call import Call, phase

USB_SLOTS = 4  # as many as KubeVirt gives a guest


class UsbEndpoint(Protocol):
    """Knows the USB slots of the guests that run here."""

    async def usb_sockets(self, namespace: str, vmi: str) -> list[Path]:
        """Return the unix sockets of a running guest's slots.

        The caller has checked in the status that the guest runs. Raises BadRequest if it does not
        run here any more.
        """


class UsbSlots:
    """Connects clients to the USB slots of guests, one client to each."""

    def __init__(self, endpoint: UsbEndpoint) -> None:
        self._endpoint = endpoint
        self._taken: set[Path] = set()

    async def verb(self, call: Call) -> web.StreamResponse:
        """Answer `GET …/virtualmachineinstances/NAME/usbredir`."""
        vmi = await call.instance()
        devices = vmi["spec"]["domain"].get("devices") or {}
        if devices.get("clientPassthrough") is None:
            raise call.refuse(
                kinds.VMI, "the spec has no clientPassthrough: no slot for USB devices"
            )
        if phase(vmi) != "Running":
            raise BadRequest(f"the USB slots of {call.name} open when its guest runs")
        sockets = await self._endpoint.usb_sockets(call.namespace, call.name)
        if not sockets:
            raise call.refuse(kinds.VMI, "its guest was started without slots for USB devices")
        slot = next((path for path in sockets if path not in self._taken), None)
        if slot is None:
            raise ApiError(
                f"all {len(sockets)} USB slots of {call.name} are in use",
                code=503,
                reason="ServiceUnavailable",
            )
        client = stream.websocket(call, "virtctl usbredir")
        self._taken.add(slot)
        try:
            guest = await ByteChannel.of_socket(slot, f"the USB slot of {call.name}")
            return await stream.serve(call, client, guest, Endings())
        finally:
            self._taken.remove(slot)
