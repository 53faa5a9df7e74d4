"""What the subresources of an instance do to its running guest: pause, console, vnc, ports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from livevirt.errors import ApiError, BadRequest, Conflict
from livevirt.kube.control.cache import Key
from livevirt.kube.objects import refusals
from livevirt.kube.objects.request import Object
from livevirt.node.agent import Agent
from livevirt.node.dial import Dialer, DialFailed
from livevirt.node.guest import Guest
from livevirt.node.vmi_status import os_info
from livevirt.qemu import lifecycle, screen
from livevirt.qemu.agent import AgentInfo, Filesystem, Finished, User
from livevirt.qemu.errors import AgentUnavailable, CommandFailed, QmpError
from livevirt.vm import kinds
from livevirt.vm.guest.port_forward import TransportProtocol
from livevirt.vm.guest.stream import Channel
from livevirt.vm.kinds.subresources import GUEST_AGENT_STOPPED

API = "subresources.kubevirt.io/v1"
LOGS = ("compute", "guest-console-log")


class GuestEndpoints:
    """Finds a guest on some nodes, by namespace and name; raises Conflict if it does not run."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        self._agents = agents  # may still grow
        self._dialer = Dialer()

    async def pause(self, namespace: str, vmi: str) -> None:
        """Stop the guest's CPUs; the condition Paused follows."""
        self._check_stays(namespace, vmi)
        async with self._guest(namespace, vmi) as guest:
            await lifecycle.pause(guest.qmp())
            await guest.refresh()

    async def unpause(self, namespace: str, vmi: str) -> None:
        """Resume a paused guest."""
        self._check_stays(namespace, vmi)
        async with self._guest(namespace, vmi) as guest:
            await lifecycle.resume(guest.qmp())
            await guest.refresh()

    async def soft_reboot(self, namespace: str, vmi: str) -> None:
        """Ask the guest to reboot: by its agent, else by the power button of ACPI."""
        self._check_stays(namespace, vmi)
        async with self._guest(namespace, vmi) as guest:
            await guest.reboot(self._grace(namespace, vmi))

    async def reset(self, namespace: str, vmi: str) -> None:
        """Reset the machine, whatever the guest is doing."""
        self._check_stays(namespace, vmi)
        async with self._guest(namespace, vmi) as guest:
            await lifecycle.reset(guest.qmp())

    def agent_answered(self, namespace: str, vmi: str) -> bool:
        """Return whether the agent of a guest has answered since the guest is followed."""
        found = (agent.guest(namespace, vmi) for agent in self._agents)
        return any(guest is not None and guest.agent_answered for guest in found)

    async def guest_os_info(self, namespace: str, vmi: str) -> Object:
        """Return a VirtualMachineInstanceGuestAgentInfo."""
        async with self._guest(namespace, vmi) as guest:
            view, agent = guest.view.agent, await guest.agent.info()
            found: Object = {
                "apiVersion": API,
                "kind": "VirtualMachineInstanceGuestAgentInfo",
                "metadata": {},
                **_agent_info(agent),
                "hostname": await guest.agent.hostname(),
            }
            if view is not None:
                found["os"] = os_info(view)
                if view.timezone is not None:
                    found["timezone"] = f"{view.timezone.zone}, {view.timezone.offset}"
            found["userList"] = [_user(user) for user in await guest.agent.users()]
            found["fsInfo"] = {"disks": [_disk(each) for each in await guest.agent.filesystems()]}
            return found

    async def user_list(self, namespace: str, vmi: str) -> Object:
        """Return a VirtualMachineInstanceGuestOSUserList."""
        async with self._guest(namespace, vmi) as guest:
            items = [_user(user) for user in await guest.agent.users()]
        return _list("VirtualMachineInstanceGuestOSUserList", items)

    async def filesystem_list(self, namespace: str, vmi: str) -> Object:
        """Return a VirtualMachineInstanceFileSystemList."""
        async with self._guest(namespace, vmi) as guest:
            items = [_disk(each) for each in await guest.agent.filesystems()]
        return _list("VirtualMachineInstanceFileSystemList", items)

    async def exec(
        self, namespace: str, vmi: str, command: Sequence[str], stdin: bytes
    ) -> Finished:
        """Run a command in a guest and return how it ended."""
        async with self._guest(namespace, vmi) as guest:
            return await guest.agent.exec(command[0], command[1:], stdin=stdin)

    async def console_socket(self, namespace: str, vmi: str) -> Path:
        """Return the unix socket of a running guest's serial port."""
        return Path(self._running(namespace, vmi).intent.serial_socket)

    async def vnc_socket(self, namespace: str, vmi: str) -> Path:
        """Return the unix socket of a running guest's VNC server."""
        return Path(self._running(namespace, vmi).intent.vnc_socket)

    async def screenshot(self, namespace: str, vmi: str, *, move_cursor: bool) -> bytes:
        """Return the screen of a guest as a PNG image."""
        async with self._guest(namespace, vmi) as guest:
            if move_cursor:
                await screen.move_pointer(guest.qmp())
            return await screen.screenshot(guest.qmp())

    async def usb_sockets(self, namespace: str, vmi: str) -> list[Path]:
        """Return the unix sockets of a guest's slots for USB devices of clients."""
        machine = self._running(namespace, vmi).intent.machine
        return [Path(machine.usb_socket(slot)) for slot in range(machine.usb_slots)]

    async def dial(
        self, namespace: str, vmi: str, protocol: TransportProtocol, port: int
    ) -> Channel:
        """Connect to a port of a guest."""
        try:
            return await self._dialer.dial(self._running(namespace, vmi), protocol, port)
        except DialFailed as error:
            raise ApiError(f"cannot connect to {vmi}: {error}") from error

    async def log_file(self, namespace: str, pod: str, container: str) -> Path:
        """Return where a container's log is; raises BadRequest while there is none yet."""
        for agent in self._agents:
            local = agent.held_pod(Key(namespace, pod))
            if local is not None:
                folder = local.folder
                return folder.stderr if container == LOGS[0] else folder.serial
        raise BadRequest(f"container {container} in pod {pod} is waiting to start")

    def _running(self, namespace: str, vmi: str) -> Guest:
        """Return a guest that runs here; raises BadRequest."""
        for agent in self._agents:
            guest = agent.guest(namespace, vmi)
            if guest is not None and not guest.ended:
                return guest
        raise BadRequest(f"{vmi} does not run")

    def _grace(self, namespace: str, vmi: str) -> int:
        return max((agent.grace(namespace, vmi) for agent in self._agents), default=0)

    def _check_stays(self, namespace: str, vmi: str) -> None:
        """Refuse to pause, unpause or reset a guest that migrates: it must arrive as it left."""
        if any(agent.is_leaving(namespace, vmi) for agent in self._agents):
            raise Conflict(f"VMI {vmi} is being migrated; try again once it has arrived")

    @asynccontextmanager
    async def _guest(self, namespace: str, vmi: str) -> AsyncIterator[Guest]:
        for agent in self._agents:
            guest = agent.guest(namespace, vmi)
            if guest is not None and not guest.ended:
                break
        else:
            if not self._agents:
                raise ApiError(
                    "the node is still looking at this machine; try again in a second",
                    code=503,
                    reason="ServiceUnavailable",
                    details={"retryAfterSeconds": 1},
                )
            raise Conflict(f"VMI {vmi} does not run here")
        try:
            yield guest
        except AgentUnavailable as error:
            why = f"{error}; whether it has done what it was asked for is not known"
            details = refusals.details(kinds.VMI, vmi)
            details["causes"] = [{"reason": GUEST_AGENT_STOPPED, "message": why}]
            raise Conflict(f"VMI {vmi}: {why}", details=details) from error
        except (CommandFailed, QmpError) as error:
            raise Conflict(f"VMI {vmi}: {error}") from error


def _agent_info(agent: AgentInfo) -> Object:
    commands = [
        {"name": command.name, "enabled": command.enabled} for command in agent.supported_commands
    ]
    return {"guestAgentVersion": agent.version, "supportedCommands": commands}


def _user(user: User) -> Object:
    found: Object = {"userName": user.user, "loginTime": user.login_time}
    return found | ({"domain": user.domain} if user.domain else {})


def _disk(filesystem: Filesystem) -> Object:
    return {
        "diskName": filesystem.name,
        "mountPoint": filesystem.mountpoint,
        "fileSystemType": filesystem.type,
        "usedBytes": filesystem.used_bytes,
        "totalBytes": filesystem.total_bytes,
        "disk": [{"serial": each.serial, "busType": each.bus_type} for each in filesystem.disk],
    }


def _list(kind: str, items: list[Object]) -> Object:
    return {"apiVersion": API, "kind": kind, "metadata": {}, "items": items}
