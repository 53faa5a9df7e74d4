"""Polls the guest agent of one guest for what only the guest knows: addresses, OS, CPUs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from livevirt.node.guest.view import AgentView, ViewStore
from livevirt.node.intent import Intent
from livevirt.qemu import guest_memory
from livevirt.qemu.agent import GuestAgent, Vcpu
from livevirt.qemu.errors import AgentUnavailable, CommandFailed, UnplugRefused
from livevirt.qemu.guest_memory import GuestMemory

log = logging.getLogger(__name__)

SILENT_SECONDS = 30.0  # an agent that has not answered for so long, twice in a row, counts as gone
_OFTEN_SECONDS, _SELDOM_SECONDS = 1.0, 15.0  # between polls
_OFTEN = 30  # polls made often, while the guest has no address
_REPORTS_BLOCKS = frozenset({guest_memory.BLOCKS, guest_memory.BLOCK_INFO})


class AgentPoller:
    """Polls while an agent has its port open: often until the guest has an address."""

    def __init__(self, intent: Intent, views: ViewStore, wake: Callable[[], None]) -> None:
        self.client = GuestAgent(intent.agent_socket)
        self.silent = False  # an agent's port is open, and it has not answered
        self.answered = False  # at some time since this guest is followed
        self._intent, self._views, self._wake = intent, views, wake
        self._port_changed = asyncio.Event()
        self._last_answer = time.monotonic()
        self._unanswered = 0  # polls in a row
        self._unmovable = False  # whatever agent brought the memory online

    def port_changed(self, is_open: bool) -> None:
        """Take notice that an agent has opened or closed its port."""
        self._port_changed.set()
        if not is_open:
            self.client.hang_up()  # requests to an agent that is gone have no answer

    async def run(self) -> None:
        """Poll until cancelled."""
        often = _OFTEN
        while True:
            self._port_changed.clear()
            if not self._views.current.agent_open:
                often = _OFTEN
                await self._port_changed.wait()
                continue
            answer = await self._poll()
            if answer is not None:
                self.answered = True
                self._heard()
                view, merged = self._views.current, self._merged(answer)
                self._views.show(replace(view, agent=merged, agent_silent=False))
            else:
                self._not_heard()
                if self._views.current.agent is None and not self.silent:
                    self.silent = True
                    self._wake()
            often = 0 if answer and answer.has_address else max(0, often - 1)
            soon = often or self._unanswered == 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_OFTEN_SECONDS if soon else _SELDOM_SECONDS):
                    await self._port_changed.wait()

    async def refresh_size(self) -> None:
        """Poll the guest's CPUs and memory now, if there is an agent; raises AgentUnavailable."""
        agent = self._views.current.agent
        if agent is None:
            return
        try:
            vcpus, blocks = await self._vcpus(), await self._blocks(agent)
        except AgentUnavailable:
            self._not_heard()
            raise
        self._heard()
        self._update(vcpus=vcpus, blocks=blocks)

    async def prepare_memory(self) -> None:
        """Make the guest's kernel bring new memory online where it can be taken away again.

        Where the agent may not, that is noted: blocks are brought online as they appear.
        """
        try:
            setting = await guest_memory.online_new_blocks(self.client)
        except CommandFailed as error:
            log.info("guest cannot be set to online new memory", extra=self._fields(error))
            setting = ""
        self._update(auto_online=setting)

    async def online_memory(self, blocks: tuple[int, ...]) -> None:
        """Let the guest bring blocks of memory online, where they can be taken away if it may."""
        left = await guest_memory.online_as_movable(self.client, blocks)
        if not left:
            return
        done = await guest_memory.bring_online(self.client, left)
        if done:
            self._unmovable = True
            self._update(unmovable=True)
        if done < len(left):
            raise UnplugRefused(f"the guest left {len(left) - done} memory blocks offline")

    def _update(self, **fields: object) -> None:
        agent = self._views.current.agent
        if agent is not None:  # it may have gone meanwhile
            changed = replace(agent, **fields)  # type: ignore[arg-type]
            self._views.show(replace(self._views.current, agent=changed))

    def _merged(self, answer: AgentView) -> AgentView:
        """Return an answer with what was noted while it was on its way."""
        agent, observed = self._views.current.agent, self._views.current.observed
        self._unmovable &= observed is not None and observed.memory.plugged > 0
        setting = agent.auto_online if agent is not None else None
        return replace(answer, auto_online=setting, unmovable=self._unmovable)

    def _heard(self) -> None:
        self._last_answer, self._unanswered, self.silent = time.monotonic(), 0, False

    def _not_heard(self) -> None:
        """Count an answer that did not come; what an agent that hangs once reported is void."""
        observed = self._views.current.observed
        if observed is None or observed.run_state != "running":
            self._unanswered = 0  # a paused guest cannot answer
            return
        self._unanswered += 1
        if self._unanswered > 1 and time.monotonic() - self._last_answer > SILENT_SECONDS:
            if not self._views.current.agent_silent:
                log.warning("guest agent does not answer", extra=self._who())
            self.silent = True
            self._views.show(replace(self._views.current, agent=None, agent_silent=True))

    async def _poll(self) -> AgentView | None:
        known, client = self._views.current.agent, self.client
        try:
            if known is None:
                info = await client.info()
                commands = frozenset(each.name for each in info.supported_commands if each.enabled)
                known = AgentView(info.version, commands=commands)
                with contextlib.suppress(CommandFailed):
                    known = replace(known, os=await client.osinfo())
                with contextlib.suppress(CommandFailed):
                    known = replace(known, timezone=await client.timezone())
                with contextlib.suppress(CommandFailed):
                    possible = await guest_memory.possible_cpus(client)
                    known = replace(known, possible_cpus=possible)
            with contextlib.suppress(CommandFailed):
                known = replace(known, interfaces=await client.interfaces())
            known = replace(known, vcpus=await self._vcpus(), blocks=await self._blocks(known))
        except (AgentUnavailable, CommandFailed) as error:
            log.debug("guest agent does not answer", extra=self._fields(error))
            return None
        except Exception as error:  # a bug of ours must not end the polling of this guest
            log.error("guest agent not polled", extra=self._fields(error), exc_info=error)
            return None
        return known

    async def _vcpus(self) -> tuple[Vcpu, ...] | None:
        """Return the guest's CPUs, None if its agent does not report them."""
        try:
            return await self.client.vcpus()
        except CommandFailed as error:
            log.debug("guest agent reports no CPUs", extra=self._fields(error))
            return None

    async def _blocks(self, agent: AgentView) -> GuestMemory | None:
        """Return the guest's memory blocks, None if its agent does not report them."""
        observed = self._views.current.observed
        if observed is None or not (observed.memory.plugged or observed.memory.requested):
            # There is nothing to ask for yet; what matters is whether it could be.
            return GuestMemory() if agent.commands >= _REPORTS_BLOCKS else None
        try:
            known = agent.blocks.block_size if agent.blocks is not None else 0
            return await guest_memory.read(self.client, known)
        except CommandFailed as error:
            log.debug("guest agent reports no memory blocks", extra=self._fields(error))
            return None

    def _fields(self, error: Exception) -> dict[str, str]:
        return {**self._who(), "error": str(error)}

    def _who(self) -> dict[str, str]:
        return {"vmi": f"{self._intent.namespace}/{self._intent.vmi}"}
