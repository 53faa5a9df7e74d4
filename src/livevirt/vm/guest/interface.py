"""What the server asks of a running guest; the node that runs it answers."""

from __future__ import annotations

from typing import Protocol

from livevirt.kube.objects.request import Object


class GuestEndpoint(Protocol):
    """Reaches the guests that run here, by the namespace and name of their instance.

    Whoever calls has seen in the status that the guest runs. Raises Conflict if it does not any
    more.
    """

    async def pause(self, namespace: str, vmi: str) -> None:
        """Stop the guest's CPUs; the condition Paused follows."""

    async def unpause(self, namespace: str, vmi: str) -> None:
        """Let a paused guest go on."""

    async def soft_reboot(self, namespace: str, vmi: str) -> None:
        """Ask the guest to reboot: by its agent, else by the power button of ACPI."""

    async def reset(self, namespace: str, vmi: str) -> None:
        """Reset the machine, whatever the guest is doing."""

    async def guest_os_info(self, namespace: str, vmi: str) -> Object:
        """Return a VirtualMachineInstanceGuestAgentInfo."""

    async def user_list(self, namespace: str, vmi: str) -> Object:
        """Return a VirtualMachineInstanceGuestOSUserList."""

    async def filesystem_list(self, namespace: str, vmi: str) -> Object:
        """Return a VirtualMachineInstanceFileSystemList."""
