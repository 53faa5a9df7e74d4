"""Sends one guest away: offers it, sends it once somebody waits for it, and says how that goes.

A guest that was sent whole stands still here. It goes on here only if the instance says that the
migration failed; after the last byte only the target's node says so, when its QEMU is gone. One
that stood still before does not go on then, and QEMU sends it again only after it did.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from livevirt.errors import LivevirtError
from livevirt.kube.control.clock import Now
from livevirt.node.guest import Guest
from livevirt.node.handover import Handovers, Offer
from livevirt.node.intent import Leaving
from livevirt.node.move import Move, Patience, Sent, limits, most_seconds
from livevirt.node.pod_dir import PodDir
from livevirt.qemu import lifecycle, migration
from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.lifecycle import RUNS, SENT_WHOLE
from livevirt.qemu.machine import Machine
from livevirt.qemu.migration import Undescribed
from livevirt.qemu.session import Session

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.2  # between looks at a transfer
PREPARE_SECONDS = 120.0  # for the other side to wait for the guest; it takes a second or two
EXTRA_SECONDS = 30.0  # over every limit, for a QEMU that does not answer or take over
ABOUT_TO_BE_SENT = "finish-migrate"  # whole, or not at all: for a moment only
_SENT = (SENT_WHOLE, ABOUT_TO_BE_SENT)
_NOBODY = "nobody waited for the guest within {:.0f} s"
_STUCK = "the guest was sent in vain while it was paused; it can move again once it was unpaused"


class Departure:
    """One migration of one guest, from its source. `want` it; read `told` when woken."""

    def __init__(
        self,
        guest: Guest,
        folder: PodDir,
        handovers: Handovers,
        describe: Callable[[], Awaitable[Machine]],
        wake: Callable[[], None],
        now: Now,
    ) -> None:
        self.told = Sent()
        self.over = False  # and the guest goes on here, or is gone
        self.uid = ""  # of the migration
        self._guest, self._folder, self._handovers = guest, folder, handovers
        self._describe, self._wake, self._now = describe, wake, now
        self._move: Move | None = None
        self._noting: asyncio.Task[None] | None = None  # that it leaves
        self._patience: Patience | None = None
        self._began = self._heard = _clock()  # heard: how a guest is sent that is not whole yet
        self._sending: float | None = None  # since when
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"departure of {guest.intent.vmi}")

    def want(self, move: Move) -> None:
        """Go on with this migration, as the instance tells it now."""
        if move != self._move:
            self._move, self.uid = move, move.uid
            self._handovers.call(move.uid, "source", self._changed.set)
            self._changed.set()

    def stop(self) -> None:
        """Let go; whoever comes next finds out how far it is."""
        self._task.cancel()

    async def _run(self) -> None:
        clock = asyncio.create_task(self._keep_time(), name="time of a departure")
        try:
            await self._look_after()
        finally:
            clock.cancel()

    async def _look_after(self) -> None:
        while not self.over:
            if self._move is not None:
                try:
                    await self._round(self._move)
                except (LivevirtError, OSError) as error:
                    log.debug("migration not looked after", extra=self._facts(str(error)))
                except Exception as error:  # a guest that is held still must not be forgotten
                    log.exception("migration not looked after", extra=self._facts(str(error)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._changed.wait()
            self._changed.clear()

    async def _keep_time(self) -> None:
        """Tell that it takes too long also while a round waits for QEMU or the disk.

        No round is cut short for it: some steps must not be done by halves. It only has the guest
        called off, which is the target's to decide.
        """
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            move = self._move
            if move is None or move.ended or self.told.failed or self.told.late:
                continue
            if late := self._overdue(move, _clock() - EXTRA_SECONDS):
                self._show(Sent(late=late))

    def _overdue(self, move: Move, now: float) -> str:
        """Return which limit is over, whatever QEMU does; who may stop the guest has one twice.

        A guest that was sent whole is to arrive within the limits, too.
        """
        if now < self._began:
            return ""  # first see what others left to us
        if not move.started:
            nobody = now - self._began > PREPARE_SECONDS
            return _NOBODY.format(PREPARE_SECONDS) if nobody else ""
        began = self._sending_since(move)
        times = 2 if move.settings.get("allowWorkloadDisruption") else 1
        most = times * most_seconds(move.settings, self._guest.intent.machine.memory.max)
        if most and now - began > most:
            return f"the guest did not arrive within {most:.0f} s (completionTimeoutPerGiB)"
        silent = float(move.settings.get("progressTimeout") or 0)
        if silent and now - max(began, self._heard) > silent:
            return f"nothing was heard of the guest for {silent:.0f} s (progressTimeout)"
        return ""

    async def _round(self, move: Move) -> None:
        qmp = self._guest.qmp()
        if move.ended:
            await self._finish(qmp, move)
            return
        if self.told.failed:
            return  # until the instance says so
        noted = self._folder.read_departure() if self._noting is None else None
        if noted is not None and noted.uid == move.uid:
            await self._follow(qmp, move, noted)
            return
        if noted is not None and not await self._stay(qmp):  # nobody saw how an earlier one failed
            return
        if not move.started and _clock() - self._began > PREPARE_SECONDS:
            self._show(Sent(failed=_NOBODY.format(PREPARE_SECONDS)))
            return
        offer = self._handovers.offered(move.uid) or await self._offer(qmp, move)
        if offer is None:
            return
        socket = self._handovers.socket(move.uid)
        if socket is not None:
            # Noted before it is begun: whoever finds the note and no transfer knows that it came
            # to nothing. That it begins is told meanwhile.
            if self._noting is None:
                what = Leaving(uid=move.uid, paused=offer.paused)
                note = asyncio.to_thread(self._folder.note_departure, what)
                self._noting = asyncio.create_task(note)
            self._show(Sent(ready=True))
            if move.started:
                await self._send(qmp, move, offer, socket)

    async def _offer(self, qmp: Session, move: Move) -> Offer | None:
        """Say what machine the guest needs; None if that cannot be said."""
        try:
            machine = await self._describe()
        except Undescribed as error:
            self._show(Sent(failed=str(error)))
            return None
        state = await lifecycle.run_state(qmp)
        if state == SENT_WHOLE:
            self._show(Sent(failed=_STUCK))
            return None
        offer = Offer(machine, paused=state not in RUNS)
        self._handovers.offer(move.uid, offer)
        return offer

    async def _send(self, qmp: Session, move: Move, offer: Offer, socket: str) -> None:
        await self._noted()
        self._guest.look_away()  # it needs the machine more than we need to know
        try:
            if not _as_offered(offer, await lifecycle.run_state(qmp)):
                self._show(Sent(failed="the guest was paused or resumed before it was sent"))
                return
            await migration.send(qmp, socket, limits(move.settings))
        except CommandFailed as error:
            self._show(Sent(failed=f"QEMU does not send the guest: {error}"))
            return
        log.info("guest leaves", extra=self._facts(""))

    async def _noted(self) -> None:
        """Return once a note that was begun is on the disk."""
        noting, self._noting = self._noting, None
        if noting is not None:
            await noting

    async def _follow(self, qmp: Session, move: Move, noted: Leaving) -> None:
        found = await migration.transfer(qmp)
        # A QEMU that the guest once came to says of that, too, that it is completed.
        sent = found.status == migration.COMPLETED and await lifecycle.run_state(qmp) in _SENT
        if found.status in (migration.NEVER, *migration.FAILED) or (
            found.status == migration.COMPLETED and not sent
        ):
            why = found.error or "it was cut short"
            self._show(Sent(failed=f"the guest was not sent: {why}"))
        elif not sent:
            self._heard = now = _clock()
            if self._patience is None:
                # One that we have stopped gets that time once more.
                began = now if noted.stopped else self._sending_since(move)
                self._patience = Patience(move.settings, began)
            late = self._patience.over(found, now)
            may_stop = move.settings.get("allowWorkloadDisruption") and not noted.stopped
            if late and may_stop and await self._stop_guest(qmp, noted):
                self._patience = None
            elif late:
                self._show(Sent(late=late))

    def _sending_since(self, move: Move) -> float:
        """Return since when a guest has been sent, whoever saw to it before."""
        if self._sending is None:
            sent_for = self._now() - move.since if move.since is not None else timedelta(0)
            self._sending = _clock() - max(sent_for.total_seconds(), 0.0)
        return self._sending

    async def _stop_guest(self, qmp: Session, noted: Leaving) -> bool:
        """Have the guest stand still: what does not change is sent in one go.

        Returns whether it was stopped; one that does not run stands still already.
        """
        if await lifecycle.run_state(qmp) != "running":
            return False
        noted = msgspec.structs.replace(noted, stopped=True)
        await asyncio.to_thread(self._folder.note_departure, noted)
        await lifecycle.pause(qmp)
        return True

    async def _finish(self, qmp: Session, move: Move) -> None:
        if move.failed:
            if not await self._stay(qmp):
                return
            await self._guest.look_again()
        else:
            await self._say_gone(qmp)
        self._handovers.forget(move.uid)
        self.over = True
        self._wake()

    async def _stay(self, qmp: Session) -> bool:
        """Have a guest that is not sent after all go on as before; return whether it does."""
        await self._noted()
        state = await lifecycle.run_state(qmp)
        if state == ABOUT_TO_BE_SENT:
            return False
        if goes_on(self._folder.read_departure(), state):
            await lifecycle.resume(qmp)
            log.warning("guest goes on where it was", extra=self._facts(""))
        await asyncio.to_thread(self._folder.forget_departure)
        return True

    async def _say_gone(self, qmp: Session) -> None:
        """Log what it took, as long as the QEMU that was left can tell."""
        with contextlib.suppress(LivevirtError):
            found = await migration.transfer(qmp)
            cost = {"transferred": found.transferred, "downtime_ms": found.downtime_ms}
            log.info("guest left", extra={**self._facts(""), **cost})

    def _show(self, told: Sent) -> None:
        if told != self.told:
            self.told = told
            self._wake()

    def _facts(self, error: str) -> dict[str, str]:
        intent = self._guest.intent
        facts = {"vmi": f"{intent.namespace}/{intent.vmi}"}
        return facts | ({"error": error} if error else {})


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _as_offered(offer: Offer, state: str) -> bool:
    """Tell whether a guest in that run state would arrive as it is: running, or standing still."""
    return state != "paused" if not offer.paused else state not in RUNS


def goes_on(noted: Leaving | None, state: str) -> bool:
    """Tell whether a guest that stays is to be resumed: it ran before, and stands still for us."""
    if noted is None:
        return False
    return (state == SENT_WHOLE and not noted.paused) or (noted.stopped and state == "paused")
