"""Waits for one guest in a QEMU that was started for it, stopped, and lets it run once it is here.

That it has come is noted before its first instruction runs here. So a guest of which there is no
such note has not run here, whatever became of this QEMU, and may go on where it was. The note must
outlive us at once, and the machine, with which all guests end, only when the instance is told.

Who calls a guest off stops its arrival first. The note is made, and looked for, between two steps
of the event loop: one of both comes first, and there is nothing in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from livevirt.errors import LivevirtError
from livevirt.node.guest import Guest
from livevirt.node.handover import Handovers
from livevirt.node.intent import Incoming
from livevirt.node.move import Got
from livevirt.node.pod_dir import PodDir
from livevirt.qemu import lifecycle, migration
from livevirt.qemu.session import Events, Session

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.05
LOOK_SECONDS = 1.0  # should an event be missed
PEACE_SECONDS = 0.15  # a guest that has just arrived has better things to do than to be looked at
_WAITING = "inmigrate"


class Arrival:
    """One migration of one guest, at its target. Read `told` when woken."""

    def __init__(
        self,
        guest: Guest,
        incoming: Incoming,
        folder: PodDir,
        handovers: Handovers,
        wake: Callable[[], None],
    ) -> None:
        self.told = Got()
        self._guest, self._incoming, self._folder = guest, incoming, folder
        self._handovers, self._wake = handovers, wake
        self._task = asyncio.create_task(self._run(), name=f"arrival of {guest.intent.vmi}")

    def stop(self) -> None:
        """Let go; whoever comes next finds out how far it is."""
        self._task.cancel()

    async def _run(self) -> None:
        while not self.told.arrived:
            try:
                await self._receive(self._guest.qmp())
            except (LivevirtError, OSError) as error:
                log.debug("no guest yet", extra=self._facts() | {"error": str(error)})
                await asyncio.sleep(RETRY_SECONDS)

    async def _receive(self, qmp: Session) -> None:
        socket = self._guest.intent.machine.migration_socket
        with qmp.listen(migration.EVENT) as events:
            if await lifecycle.run_state(qmp) == _WAITING:
                await migration.listen(qmp, socket)
                self._handovers.listen(self._incoming.uid, socket)
            while (state := await lifecycle.run_state(qmp)) == _WAITING:
                await _next(events)
            self._folder.begin_arrival()  # at once: from now on it is too late to call it off
            if state == "paused" and not self._incoming.paused:
                await lifecycle.resume(qmp)
            await asyncio.to_thread(self._folder.keep_arrival)
        log.info("guest arrived", extra=self._facts())
        self._show(Got(arrived=True))
        await asyncio.sleep(PEACE_SECONDS)
        await self._guest.look_again()

    def _show(self, told: Got) -> None:
        if told != self.told:
            self.told = told
            self._wake()

    def _facts(self) -> dict[str, str]:
        intent = self._guest.intent
        return {"vmi": f"{intent.namespace}/{intent.vmi}"}


async def _next(events: Events) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LOOK_SECONDS):
            await anext(events)
