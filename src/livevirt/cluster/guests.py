"""What subresources answer that need the node agent of a guest, where none is announced.

Every request is checked as usual, and then refused with the reason instead of being half done.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from livevirt.errors import ApiError
from livevirt.kube.objects.request import Object
from livevirt.vm.guest.exec import Finished
from livevirt.vm.guest.port_forward import TransportProtocol
from livevirt.vm.guest.stream import Channel
from livevirt.vm.kinds.subresources import NO_NODE_AGENT


class NoNodeAgent:
    """Refuses everything that reaches into a guest (`GuestEndpoint` and `GuestAccess`)."""

    def agent_answered(self, namespace: str, vmi: str) -> bool:
        """Return False: only the node agent has talked to the guest agent."""
        return False

    async def pause(self, namespace: str, vmi: str) -> None:
        """Refuse to stop the guest's CPUs."""
        _refuse("pause", vmi)

    async def unpause(self, namespace: str, vmi: str) -> None:
        """Refuse to resume the guest's CPUs."""
        _refuse("unpause", vmi)

    async def soft_reboot(self, namespace: str, vmi: str) -> None:
        """Refuse to reboot the guest."""
        _refuse("softreboot", vmi)

    async def reset(self, namespace: str, vmi: str) -> None:
        """Refuse to reset the machine."""
        _refuse("reset", vmi)

    async def guest_os_info(self, namespace: str, vmi: str) -> Object:
        """Refuse to query the guest agent."""
        _refuse("guestosinfo", vmi)

    async def user_list(self, namespace: str, vmi: str) -> Object:
        """Refuse to query the guest agent."""
        _refuse("userlist", vmi)

    async def filesystem_list(self, namespace: str, vmi: str) -> Object:
        """Refuse to query the guest agent."""
        _refuse("filesystemlist", vmi)

    async def console_socket(self, namespace: str, vmi: str) -> Path:
        """Refuse to open the console."""
        _refuse("console", vmi)

    async def vnc_socket(self, namespace: str, vmi: str) -> Path:
        """Refuse to open the screen."""
        _refuse("vnc", vmi)

    async def screenshot(self, namespace: str, vmi: str, *, move_cursor: bool) -> bytes:
        """Refuse to take a picture of the screen."""
        _refuse("vnc/screenshot", vmi)

    async def usb_sockets(self, namespace: str, vmi: str) -> list[Path]:
        """Refuse to redirect a USB device."""
        _refuse("usbredir", vmi)

    async def dial(
        self, namespace: str, vmi: str, protocol: TransportProtocol, port: int
    ) -> Channel:
        """Refuse to connect to a port of the guest."""
        _refuse("portforward", vmi)

    async def exec(
        self, namespace: str, vmi: str, command: Sequence[str], stdin: bytes
    ) -> Finished:
        """Refuse to run a command in the guest."""
        _refuse("exec", vmi)


def _refuse(subresource: str, vmi: str) -> NoReturn:
    why = (
        f"{subresource} needs the livevirt node agent of the node that runs {vmi};"
        " none is announced there"
    )
    raise _error(501, "NotImplemented", vmi, why)


def unreachable(vmi: str, why: str) -> ApiError:
    """Return the refusal if the agent of a guest's node does not answer."""
    message = f"the livevirt node agent of {vmi} is not reachable: {why}"
    return _error(503, "ServiceUnavailable", vmi, message)


def _error(code: int, reason: str, vmi: str, why: str) -> ApiError:
    causes = [{"reason": NO_NODE_AGENT, "message": why}]
    return ApiError(why, code=code, reason=reason, details={"name": vmi, "causes": causes})
