"""The target of one migration: receives a guest in a stopped QEMU, and then lets it run.

The arrival is noted before the guest's first instruction runs here. So a guest without that note
has not run here, whatever became of this QEMU, and may be resumed at its source. The note must
survive the agent at once, and the machine, with which all guests end, before it is reported.

Cancelling a migration stops this first. The note is written, and looked for, without yielding
to the event loop in between: one of both comes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from livevirt.errors import LivevirtError
from livevirt.node.guest import Guest
from livevirt.node.intent import Incoming
from livevirt.node.migration.facts import Migration, PodFacts, Side
from livevirt.node.migration.handover import Handovers, MigrationNotes
from livevirt.node.migration.states import TargetStep, target
from livevirt.qemu import lifecycle, migration
from livevirt.qemu.session import Events, Session

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.05
POLL_SECONDS = 1.0  # in case an event is missed
SETTLE_SECONDS = 0.15  # before QEMU is observed again: a guest that just arrived has to catch up


class TargetMigration:
    """One migration of one guest, at its target. Read `arrived` when woken."""

    side: Final = Side.TARGET

    def __init__(
        self,
        guest: Guest,
        incoming: Incoming,
        notes: MigrationNotes,
        handovers: Handovers,
        wake: Callable[[], None],
    ) -> None:
        self.arrived = False  # the note is durable and the guest may run
        self.uid = incoming.uid
        self._guest, self._incoming, self._notes = guest, incoming, notes
        self._handovers, self._wake = handovers, wake
        self._task = asyncio.create_task(self._run(), name=f"arrival of {guest.intent.vmi}")

    def stop(self) -> None:
        """Take no further step; another agent can continue."""
        self._task.cancel()

    async def _run(self) -> None:
        while not self.arrived:
            try:
                await self._receive(self._guest.qmp())
            except (LivevirtError, OSError) as error:
                log.debug("guest not received yet", extra=self._fields() | {"error": str(error)})
                await asyncio.sleep(RETRY_SECONDS)

    async def _receive(self, qmp: Session) -> None:
        listening = False
        with qmp.listen(migration.EVENT) as events:
            while not self.arrived:
                run_state = await lifecycle.run_state(qmp)
                # From here to the note nothing yields to the event loop.
                for step in target(self._facts(run_state)).steps:
                    if step is not TargetStep.LISTEN:
                        await self._do(step, qmp, run_state)
                    elif listening:
                        await _next(events)
                    else:
                        await self._listen(qmp)
                        listening = True
        await asyncio.sleep(SETTLE_SECONDS)
        await self._guest.resume_observation()

    def _facts(self, run_state: str) -> PodFacts:
        """Return the facts of this moment; cancelling the migration stops this task."""
        intent = self._guest.intent
        return PodFacts(
            pod=intent.pod,
            node=intent.node,
            migration=Migration(self._incoming.uid, target_pod=intent.pod),
            reserved=True,
            incoming=self._incoming.uid,
            intended=True,
            arrived=self._notes.arrived,
            run_state=run_state,
        )

    async def _do(self, step: TargetStep, qmp: Session, run_state: str) -> None:
        match step:
            case TargetStep.WRITE_NOTE:
                self._notes.write_arrived()  # from now on it is too late to cancel
            case TargetStep.RESUME:
                if run_state == "paused" and not self._incoming.paused:
                    await lifecycle.resume(qmp)
            case TargetStep.SYNC_NOTE:
                await asyncio.to_thread(self._notes.sync)
            case TargetStep.REPORT_ARRIVAL:
                log.info("guest arrived", extra=self._fields())
                self.arrived = True
                self._wake()

    async def _listen(self, qmp: Session) -> None:
        socket = self._guest.intent.machine.migration_socket
        await migration.listen(qmp, socket)
        self._handovers.listen(self._incoming.uid, socket)

    def _fields(self) -> dict[str, str]:
        intent = self._guest.intent
        return {"vmi": f"{intent.namespace}/{intent.vmi}"}


async def _next(events: Events) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(POLL_SECONDS):
            await anext(events)
