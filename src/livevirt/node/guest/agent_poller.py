"""Polls the guest agent of one guest for what only the guest knows: addresses, OS, CPUs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace

from livevirt.node.guest.view import AgentView, ViewStore
from livevirt.node.intent import Intent
from livevirt.qemu.agent import GuestAgent, Vcpu
from livevirt.qemu.errors import AgentUnavailable, CommandFailed

log = logging.getLogger(__name__)

_OFTEN_SECONDS, _SELDOM_SECONDS = 1.0, 15.0  # between polls
_OFTEN = 30  # polls made often, while the guest has no address


class AgentPoller:
    """Polls while an agent has its port open: often until the guest has an address."""

    def __init__(self, intent: Intent, views: ViewStore, wake: Callable[[], None]) -> None:
        self.client = GuestAgent(intent.machine.agent_socket)
        self.silent = False  # an agent's port is open, and it has not answered
        self.answered = False  # at some time since this guest is followed
        self._intent, self._views, self._wake = intent, views, wake
        self._port_changed = asyncio.Event()

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
                self._views.show(replace(self._views.current, agent=answer))
            elif self._views.current.agent is None and not self.silent:
                self.silent = True
                self._wake()
            often = 0 if answer and answer.has_address else max(0, often - 1)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_OFTEN_SECONDS if often else _SELDOM_SECONDS):
                    await self._port_changed.wait()

    async def refresh_vcpus(self) -> None:
        """Poll the guest's CPUs now, if there is an agent; raises AgentUnavailable."""
        if self._views.current.agent is None:
            return
        vcpus = await self._vcpus()
        agent = self._views.current.agent
        if agent is not None:  # it may have gone meanwhile
            self._views.show(replace(self._views.current, agent=replace(agent, vcpus=vcpus)))

    async def _poll(self) -> AgentView | None:
        known, client = self._views.current.agent, self.client
        try:
            if known is None:
                known = AgentView((await client.info()).version)
                with contextlib.suppress(CommandFailed):
                    known = replace(known, os=await client.osinfo())
                with contextlib.suppress(CommandFailed):
                    known = replace(known, timezone=await client.timezone())
            with contextlib.suppress(CommandFailed):
                known = replace(known, interfaces=await client.interfaces())
            known = replace(known, vcpus=await self._vcpus())
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

    def _fields(self, error: Exception) -> dict[str, str]:
        return {"vmi": f"{self._intent.namespace}/{self._intent.vmi}", "error": str(error)}
