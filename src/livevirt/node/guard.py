"""Keeps a disk where it is while the guest uses it: asks its agent, and looks at the tray."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from livevirt.node import attachments
from livevirt.node.attachments import Problem
from livevirt.node.domain import volume_of
from livevirt.node.guest import Guest
from livevirt.qemu.agent import GET_FSINFO, Filesystem
from livevirt.qemu.errors import AgentUnavailable, CommandFailed
from livevirt.qemu.observe import Drive, Observed, mount_points, pci_addresses
from livevirt.vm.volumes.volume_patch import FORCE_DETACH

AGENT_SECONDS = 5.0  # a loaded emulated guest takes its time
_STANDS = {"io-error": "stopped by a disk that failed"}  # QEMU's other states speak for themselves


class Guard:
    """Asks the guest, once a round, what it uses of the disks that are to go.

    What it said last counts while its agent is away: one that is restarted is so for a moment only.
    """

    def __init__(self, guest: Guest, forced: frozenset[str], mounted: set[str]) -> None:
        self._guest, self._forced = guest, forced
        self._mounted = mounted  # is kept up to date here
        self._answer: asyncio.Task[list[Filesystem]] | None = None

    async def objection(self, now: Observed, id: str) -> Problem | None:
        """Return why a drive must not be unplugged now."""
        drive = now.drive(id)
        if drive is None or volume_of(id) in self._forced:
            return None
        if drive.locked:
            return await self.locked(now, id)
        if drive.removable:
            return None  # a guest that uses a CD-ROM locks the tray
        if not now.agent_open and id not in self._mounted:
            return None  # no agent to ask
        if not now.agent_open:
            message = "mounted when the guest agent last answered, and it is gone"
            return Problem(attachments.AGENT_SILENT, f"{message}; {_cure(id)}", mounted=True)
        if now.run_state != "running":
            how = _STANDS.get(now.run_state, now.run_state)
            message = f"the guest is {how} and cannot report whether it uses the disk"
            return Problem(attachments.AGENT_SILENT, f"{message}; {_cure(id)}")
        try:
            points = await self._points(drive)
        except (AgentUnavailable, CommandFailed, TimeoutError) as error:
            why = f" ({error})" if isinstance(error, CommandFailed) else ""
            message = f"the guest agent does not report whether the guest uses the disk{why}"
            return Problem(attachments.AGENT_SILENT, f"{message}; {_cure(id)}")
        if points:
            self._mounted.add(id)
            where = f"mounted at {', '.join(points)}"
            return Problem(attachments.IN_USE, f"{where}; {_cure(id)}", mounted=True)
        self._mounted.discard(id)
        return None

    async def locked(self, now: Observed, id: str) -> Problem:
        """Report that the guest has locked the tray of a drive."""
        drive, points = now.drive(id), list[str]()
        if drive is not None and now.agent_open:
            with contextlib.suppress(AgentUnavailable, CommandFailed, TimeoutError):
                points = await self._points(replace(drive, locked=True))
        where = f", mounted at {', '.join(points)}" if points else ""
        message = f"the guest holds the tray locked{where}; {_cure(id)}"
        return Problem(attachments.IN_USE, message)

    async def _points(self, drive: Drive) -> list[str]:
        if self._answer is None:
            self._answer = asyncio.create_task(self._ask())
        found = await self._answer
        addresses = await pci_addresses(self._guest.qmp())
        return mount_points(drive, found, addresses)

    async def _ask(self) -> list[Filesystem]:
        agent = self._guest.agent
        async with asyncio.timeout(AGENT_SECONDS):
            try:
                return list(await agent.filesystems())
            except CommandFailed:
                # One that cannot report it is as good as none; one that may not now, because
                # the guest is frozen, or fails, leaves it open what is mounted.
                known = {each.name for each in (await agent.info()).supported_commands}
                if GET_FSINFO in known:
                    raise
                return []


def _cure(id: str) -> str:
    name = volume_of(id)
    return f"unmount it there, or annotate the VM {FORCE_DETACH}={name}"
