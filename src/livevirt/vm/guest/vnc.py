"""A guest's screen: as VNC over a WebSocket, and as a picture.

A screen has one viewer, and a new one takes it over. A picture disturbs no viewer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from aiohttp import WSCloseCode, web

from livevirt.errors import BadRequest
from livevirt.kube.objects import refusals
from livevirt.vm.guest import stream
from livevirt.vm.guest.stream import ByteChannel, Closing, Endings, Seats
from livevirt.vm.subresources.call import Call, phase

TAKEN_OVER = "another client took over the screen"
GUEST_GONE = "the guest closed the screen: it was powered off or has ended"

_ENDINGS = Endings(
    guest_ended=Closing(WSCloseCode.GOING_AWAY, GUEST_GONE),
    taken_over=Closing(WSCloseCode.GOING_AWAY, TAKEN_OVER),
)


class ScreenEndpoint(Protocol):
    """Knows the screens of the guests that run here.

    The caller has checked in the status that the guest runs. Raises BadRequest if it does not run
    here any more.
    """

    async def vnc_socket(self, namespace: str, vmi: str) -> Path:
        """Return the unix socket of a running guest's VNC server."""

    async def screenshot(self, namespace: str, vmi: str, *, move_cursor: bool) -> bytes:
        """Return the screen as a PNG image, after moving the pointer if that is asked for."""


class Screens:
    """Connects viewers to the screens of guests, one viewer to each."""

    def __init__(self, endpoint: ScreenEndpoint) -> None:
        self._endpoint = endpoint
        self._seats = Seats()

    async def verb(self, call: Call) -> web.StreamResponse:
        """Answer `GET …/virtualmachineinstances/NAME/vnc` and `…/vnc/screenshot`."""
        match call.rest:
            case "":
                return await self._view(call)
            case "screenshot":
                return await self._screenshot(call)
        raise refusals.no_such_path()

    async def _view(self, call: Call) -> web.StreamResponse:
        await _check_screen(call)
        path = await self._endpoint.vnc_socket(call.namespace, call.name)
        client = stream.websocket(call, "virtctl vnc")
        async with self._seats.at(path) as seat:
            guest = await ByteChannel.of_socket(path, f"the screen of {call.name}")
            return await stream.serve(call, client, guest, _ENDINGS, seat.leave)

    async def _screenshot(self, call: Call) -> web.Response:
        await _check_screen(call)
        move = call.http.query.get("moveCursor") == "true"
        image = await self._endpoint.screenshot(call.namespace, call.name, move_cursor=move)
        return web.Response(body=image, content_type="image/png")


async def _check_screen(call: Call) -> None:
    """Raise BadRequest, as KubeVirt does, unless the guest runs and has a screen."""
    vmi = await call.instance()
    devices = vmi["spec"]["domain"].get("devices") or {}
    if devices.get("autoattachGraphicsDevice") is False:
        raise BadRequest(f"{call.name} has no screen: its spec disables the graphics device")
    if phase(vmi) != "Running":
        raise BadRequest(f"the screen of {call.name} opens when its guest runs")
