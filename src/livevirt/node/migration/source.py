"""The source of one migration: observes QEMU and the notes, and takes the steps of `states.source`.

A guest that was sent whole is stopped here. It is resumed only if the instance reports that the
migration failed; after the last byte only the target's node does, once its QEMU is gone. A guest
that was paused before stays paused then, and QEMU sends it again only after it was unpaused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import msgspec

from livevirt.errors import LivevirtError
from livevirt.kube.control.clock import Now
from livevirt.node.guest import Guest
from livevirt.node.migration.facts import Migration, Side
from livevirt.node.migration.handover import Departure, Handovers, MigrationNotes, Offer
from livevirt.node.migration.limits import SourceTimer, limits
from livevirt.node.migration.states import SourceFacts, SourceState, SourceStep, resumes, source
from livevirt.node.migration.status import SourceReport
from livevirt.qemu import lifecycle, migration
from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.lifecycle import RUNS, SENT_WHOLE
from livevirt.qemu.machine import Machine
from livevirt.qemu.migration import Undescribed
from livevirt.qemu.session import Session

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2  # between observations of a transfer
_NEEDS_UNPAUSE = (
    "an earlier migration sent the guest while it was paused and failed;"
    " it can migrate again after it was unpaused"
)


class SourceMigration:
    """One migration of one guest, at its source. `follow` it; read `report` when woken."""

    side: Final = Side.SOURCE

    def __init__(
        self,
        guest: Guest,
        notes: MigrationNotes,
        handovers: Handovers,
        describe: Callable[[], Awaitable[Machine]],
        wake: Callable[[], None],
        now: Now,
    ) -> None:
        self.report = SourceReport()
        self.over = False  # the guest stays here, or is gone
        self._guest, self._notes, self._handovers = guest, notes, handovers
        self._describe, self._wake = describe, wake
        self._migration: Migration | None = None
        self._noting: asyncio.Task[None] | None = None  # writes the note before the guest is sent
        clock = asyncio.get_running_loop().time
        self._timer = SourceTimer(guest.intent.machine.memory.max, clock, now)
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"migration of {guest.intent.vmi}")

    @property
    def uid(self) -> str:
        """The uid of the migration, "" before `follow`."""
        return self._migration.uid if self._migration is not None else ""

    def follow(self, wanted: Migration) -> None:
        """Continue with the migration as the instance describes it now."""
        if wanted != self._migration:
            self._migration = wanted
            self._handovers.subscribe(wanted.uid, "source", self._changed.set)
            self._changed.set()

    def stop(self) -> None:
        """Take no further step; another agent can continue."""
        self._task.cancel()

    async def _run(self) -> None:
        watchdog = asyncio.create_task(self._watch_limits(), name="limits of a migration")
        try:
            while not self.over:
                if self._migration is not None:
                    await self._try_round(self._migration)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._changed.wait()
                self._changed.clear()
        finally:
            watchdog.cancel()

    async def _try_round(self, current: Migration) -> None:
        try:
            facts = await self._observe(current)
            decision = source(facts)
            for step in decision.steps:
                await self._do(step, facts, decision.why)
            if decision.state is SourceState.STAYING:
                self._changed.set()  # decide again at once
        except (LivevirtError, OSError) as error:
            log.debug("migration source not served", extra=self._fields(str(error)))
        except Exception as error:  # a stopped guest must not be forgotten
            log.exception("migration source not served", extra=self._fields(str(error)))

    # ------------------------------------------------------------ facts

    async def _observe(self, current: Migration) -> SourceFacts:
        """Return the facts of this moment; QEMU is asked only where its answer matters."""
        if current.ended:
            await self._note_written()
        handover = self._handovers.get(current.uid)
        facts = SourceFacts(
            migration=current,
            departure=self._notes.read_departure() if self._noting is None else None,
            offered=handover.offer is not None,
            listening=bool(handover.socket),
            failure_reported=bool(self.report.failed),
            unprepared=self._timer.unprepared(),
        )
        if facts.departure is None and not current.ended:
            return facts  # nothing was sent yet
        qmp = self._guest.qmp()
        transfer = await migration.transfer(qmp)
        run_state = await lifecycle.run_state(qmp)
        facts = replace(facts, transfer=transfer.status, error=transfer.error, run_state=run_state)
        if not facts.noted or facts.broken or facts.sent:
            return facts
        stopped = facts.departure is not None and facts.departure.stopped
        return replace(facts, overdue=self._timer.overdue(transfer, current, stopped=stopped))

    async def _watch_limits(self) -> None:
        """Report that the migration takes too long, also while a round waits for QEMU or the disk.

        No round is interrupted, because some steps must not be done by halves. The report only
        has the migration cancelled, and the target decides that.
        """
        while True:
            await asyncio.sleep(POLL_SECONDS)
            current = self._migration
            if current is None or current.ended or self.report.failed or self.report.overdue:
                continue
            if overdue := self._timer.hangs(current):
                self._show(SourceReport(overdue=overdue))

    # ------------------------------------------------------------ steps

    async def _do(self, step: SourceStep, facts: SourceFacts, why: str) -> None:
        qmp, current = self._guest.qmp(), facts.migration
        match step:
            case SourceStep.OFFER:
                await self._offer(qmp, current)
            case SourceStep.WRITE_NOTE:
                self._write_note(current)
            case SourceStep.REPORT_READY:
                self._show(SourceReport(ready=True))
            case SourceStep.SEND:
                await self._send(qmp, current)
            case SourceStep.STOP_GUEST:
                await self._stop_guest(qmp, facts)
            case SourceStep.REQUEST_ABORT:
                self._show(SourceReport(overdue=why))
            case SourceStep.REPORT_FAILURE:
                self._show(SourceReport(failed=why))
            case SourceStep.RESUME:
                if resumes(facts.departure, facts.run_state):
                    await lifecycle.resume(qmp)
                    log.warning("guest resumed at its source", extra=self._fields())
            case SourceStep.REMOVE_NOTE:
                await asyncio.to_thread(self._notes.remove_departure)
            case SourceStep.FINISH:
                await self._finish(qmp, current)

    async def _offer(self, qmp: Session, current: Migration) -> None:
        """Publish the machine that can receive the guest, or report why none can."""
        try:
            machine = await self._describe()
        except Undescribed as error:
            self._show(SourceReport(failed=str(error)))
            return
        run_state = await lifecycle.run_state(qmp)
        if run_state == SENT_WHOLE:
            self._show(SourceReport(failed=_NEEDS_UNPAUSE))
            return
        self._handovers.offer(current.uid, Offer(machine, paused=run_state not in RUNS))

    def _write_note(self, current: Migration) -> None:
        """Begin to write the note; it is on disk before the guest is sent.

        So an agent that finds the note and no transfer knows that the migration failed.
        """
        offer = self._handovers.get(current.uid).offer
        if self._noting is None and offer is not None:
            note = Departure(uid=current.uid, paused=offer.paused)
            writing = asyncio.to_thread(self._notes.write_departure, note)
            self._noting = asyncio.create_task(writing)

    async def _note_written(self) -> None:
        """Wait until a note that was begun is on disk."""
        noting, self._noting = self._noting, None
        if noting is not None:
            await noting

    async def _send(self, qmp: Session, current: Migration) -> None:
        await self._note_written()
        self._guest.suspend_observation()  # QEMU has to hurry
        handover = self._handovers.get(current.uid)
        assert handover.offer is not None
        try:
            if not _as_offered(handover.offer, await lifecycle.run_state(qmp)):
                self._show(SourceReport(failed="the guest was paused or unpaused meanwhile"))
                return
            await migration.send(qmp, handover.socket, limits(current.settings))
        except CommandFailed as error:
            self._show(SourceReport(failed=f"QEMU does not send the guest: {error}"))
            return
        log.info("migration started", extra=self._fields())

    async def _stop_guest(self, qmp: Session, facts: SourceFacts) -> None:
        """Stop the guest, because what does not change can be sent in one go."""
        assert facts.departure is not None
        note = msgspec.structs.replace(facts.departure, stopped=True)
        await asyncio.to_thread(self._notes.write_departure, note)
        await lifecycle.pause(qmp)
        self._timer.restart()

    async def _finish(self, qmp: Session, current: Migration) -> None:
        if current.failed:
            await self._guest.resume_observation()
        else:
            await self._log_cost(qmp)
        self._handovers.remove(current.uid)
        self.over = True
        self._wake()

    async def _log_cost(self, qmp: Session) -> None:
        with contextlib.suppress(LivevirtError):
            found = await migration.transfer(qmp)
            cost = {"transferred": found.transferred, "downtime_ms": found.downtime_ms}
            log.info("guest left", extra={**self._fields(), **cost})

    def _show(self, report: SourceReport) -> None:
        if report != self.report:
            self.report = report
            self._wake()

    def _fields(self, error: str = "") -> dict[str, str]:
        intent = self._guest.intent
        fields = {"vmi": f"{intent.namespace}/{intent.vmi}"}
        return fields | ({"error": error} if error else {})


def _as_offered(offer: Offer, run_state: str) -> bool:
    """Return whether a guest would arrive as it was offered: running, or paused."""
    return run_state != "paused" if not offer.paused else run_state not in RUNS
