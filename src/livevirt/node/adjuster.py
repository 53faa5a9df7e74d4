"""Keeps one guest at the size it should have: observe, plan, act, until the guest has it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from livevirt.node.guest import Guest
from livevirt.node.sizing import IDLE, NO_TROUBLE, Progress, Trouble, progress, reached
from livevirt.qemu import balloon
from livevirt.qemu.balloon import LowMemory, PollBalloon, SetBalloon
from livevirt.qemu.errors import AgentUnavailable, CommandFailed, Disconnected, NotNow, QmpError
from livevirt.qemu.lifecycle import HELD
from livevirt.qemu.machine import MIB, Thread
from livevirt.qemu.plan import (
    Blocked,
    MachineSnapshot,
    OnlineMemory,
    PlugCpu,
    PrepareMemory,
    RequestMemory,
    SetVcpus,
    Step,
    Wanted,
    resize,
)
from livevirt.vm.sizing.reservation import Size

FRESH_SECONDS = 0.1  # in which a CPU translates far less than the regions kept in reserve
_WAIT_SECONDS = 0.25  # for QEMU's answer; if it takes longer, room is being made
_PAUSE_SECONDS = 1.0  # between queries while no agent in the guest answers
_ATTEMPTS = 60  # at making room for who may not need it any more


class Room:
    """Sees to it that CPUs can be plugged into one guest; with KVM they always can."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._places, self._found = 0, 0.0  # how many, and when
        self._finding: asyncio.Task[None] | None = None

    @property
    def finding(self) -> asyncio.Task[None] | None:
        """The task that looks for room or makes it, while it does."""
        return None if self._finding is None or self._finding.done() else self._finding

    def find(self) -> asyncio.Task[None]:
        """Look for room, or make it, from now on; a search that is under way goes on."""
        if self.finding is None:
            name = f"room in {self._guest.intent.vmi}"
            self._finding = asyncio.create_task(self._find(), name=name)
        assert self._finding is not None
        return self._finding

    async def take(self) -> None:
        """Return if a CPU can be plugged now; else raise NotNow and go on making room."""
        if not self._taken():
            await asyncio.wait({self.find()}, timeout=_WAIT_SECONDS)
            if not self._taken():
                raise NotNow("QEMU's cache of translated code is nearly full; it is being emptied")

    def stop(self) -> None:
        """Look for no more."""
        if self._finding is not None:
            self._finding.cancel()

    def _taken(self) -> bool:
        if self._places < 1 or time.monotonic() > self._found + FRESH_SECONDS:
            return False
        self._places -= 1
        return True

    async def _find(self) -> None:
        for _ in range(_ATTEMPTS):
            try:
                self._places = await self._guest.room()
            except QmpError:
                return  # QEMU does not answer, as the next plug will find
            self._found = time.monotonic()
            if self._places:
                return
            if not await self._guest.stir():
                await asyncio.sleep(_PAUSE_SECONDS)


log = logging.getLogger(__name__)

ACCEPT_SECONDS = 20.0  # a guest that does nothing for so long is said not to accept
STEP_SECONDS = 5.0  # a step waits for the guest at most so long, then it is planned again
QUIET_SECONDS = 1.0  # a change that is done sooner is not reported in between
_FIRST_LOOK, _LAST_LOOK = 0.1, 1.0  # seconds between rounds
_POLL_LOOK = 0.02  # after the guest was asked for its free memory, which it reports in a moment
_PLUG_LOOK = 0.4  # after a CPU came: looking takes time that the guest needs to bring it online
_FIRST_RETRY, _LAST_RETRY = 1.0, 30.0  # after QEMU refused
_PREPARATIONS = 3  # after so many attempts a guest gets new memory unprepared
_CALM, _LONG_CALM = 2.0, 60.0  # seconds after a change, and then between rounds: time to prepare


@dataclass(slots=True)
class Pursuit:
    """One way to one size: how it goes, and so how long to wait before the next look."""

    wanted: Size
    began: float
    moved: float  # when the guest last did something
    has: tuple[int, int, int] | None = None
    looked: bool = False  # since it began
    look: float = _FIRST_LOOK
    retry: float = _FIRST_RETRY
    unprepared: int = 0  # attempts at preparing the guest for new memory that failed
    ballooned: int | None = None  # what the balloon held in the last round
    changed: int = 0  # the second in which the balloon was last set, or changed
    polled: bool = False  # the guest was asked for its free memory

    def note(self, seen: MachineSnapshot, now: float, *, plugged: bool) -> None:
        """Record what a round saw, and whether it plugged a CPU."""
        has = seen.sockets, seen.memory, seen.plugged
        if has != self.has or seen.observed.run_state in HELD:
            self.moved, self.look = now, _FIRST_LOOK
        if plugged:
            self.look = _PLUG_LOOK
        self.has = has

    def pause(self, *, refused: bool) -> float:
        """Return for how many seconds to wait: longer each time that nothing has moved."""
        if refused:
            pause, self.retry = self.retry, min(self.retry * 2, _LAST_RETRY)
        else:
            pause, self.look = self.look, min(self.look * 1.5, _LAST_LOOK)
        return pause


@dataclass(frozen=True, slots=True)
class Round:
    """What a round saw before it did anything, what went wrong, and whether a CPU was plugged."""

    seen: MachineSnapshot
    cpu: Trouble = NO_TROUBLE
    memory: Trouble = NO_TROUBLE
    plugged: bool = False
    polled: bool = False  # the guest was asked for its free memory

    @property
    def refused(self) -> bool:
        return bool(self.cpu.refused or self.memory.refused)


class Adjuster:
    """Changes the size of one guest. `want` something; read `progress` when woken."""

    def __init__(self, guest: Guest, wake: Callable[[], None]) -> None:
        self.progress = IDLE
        self._guest, self._wake = guest, wake
        self._room = Room(guest)
        self._wanted: Size | None = None
        self._soon = 0  # sockets
        self._has_agent = False
        self._changed = asyncio.Event()
        self._pursuit: Pursuit | None = None
        self._quiet_until: float | None = None  # while the size is being changed
        self._reminder: asyncio.TimerHandle | None = None
        self._plugged: set[Thread] = set()  # since the guest was looked at
        self._polls = False  # the guest reports its free memory often
        self._task = asyncio.create_task(self._run(), name=f"size of {guest.intent.vmi}")

    def want(self, size: Size, soon: int = 0) -> None:
        """Let the guest have this size from now on.

        `soon` is how many sockets it will be given as soon as its pod has room for them. What
        takes time and can be done before is done meanwhile.
        """
        has_agent = self._guest.view.agent is not None
        back, self._has_agent = has_agent and not self._has_agent, has_agent
        other, self._wanted = size != self._wanted, size
        seen = self._guest.seen
        there = seen is not None and reached(size, seen)
        if self._pursuit is not None if there else other or back or self._has_drifted(seen):
            self._changed.set()  # to see that it is done, or to begin
        if soon != self._soon:
            self._soon = soon
            if seen is not None and _lacks_cpu(seen, soon):
                self._room.find()

    def _has_drifted(self, seen: MachineSnapshot | None) -> bool:
        """Return whether the balloon is not as it was left: a guest that booted again may do so."""
        if seen is None or self._pursuit is not None or self._wanted is None:
            return False
        left = max(seen.machine.memory.boot - self._wanted.memory, 0)
        return seen.observed.memory.balloon is not None and seen.ballooned != left

    def is_brief(self, changing: bool) -> bool:
        """Return whether a change has begun so lately that it may be done before it is reported.

        The caller is woken when that is over.
        """
        if not changing:
            self._quiet_until = None
            return False
        loop = asyncio.get_running_loop()
        if self._quiet_until is None:
            self._quiet_until = loop.time() + QUIET_SECONDS
            self._reminder = loop.call_at(self._quiet_until, self._wake)
        return loop.time() < self._quiet_until

    def stop(self) -> None:
        """Stop; what was begun continues in QEMU or is planned again."""
        if self._reminder is not None:
            self._reminder.cancel()
        self._task.cancel()
        self._room.stop()

    async def _run(self) -> None:
        calm = _LONG_CALM
        while True:
            if not await self._superseded(calm):
                self._prepare()
                calm = _LONG_CALM
                continue
            self._changed.clear()
            if self._wanted is not None:
                now = time.monotonic()
                self._pursuit = Pursuit(self._wanted, began=now, moved=now, changed=_second() - 2)
                await self._follow(self._pursuit)
                self._pursuit = None
            calm = _CALM

    def _prepare(self) -> None:
        """Make room for the next CPU before it is asked for; only an agent can help with it."""
        seen = self._guest.seen
        if seen is None or self._guest.view.agent is None or seen.machine.accelerator == "kvm":
            return
        if _lacks_cpu(seen, seen.machine.cpu.max_sockets):
            self._room.find()

    async def _follow(self, pursuit: Pursuit) -> None:
        """Work towards one size until the guest has it or another is wanted."""
        wanted = pursuit.wanted
        while True:
            try:
                done = await self._round(pursuit)
            except (Disconnected, AgentUnavailable) as error:
                log.debug("guest not resized yet", extra=self._facts(error))
                if await self._superseded(_LAST_LOOK):
                    return
                continue
            except Exception as error:  # QEMU said no to a look, or it is a mistake of ours
                log.error("guest not resized", extra=self._facts(error), exc_info=error)
                if await self._superseded(pursuit.pause(refused=True)):
                    return
                continue
            now = time.monotonic()
            pursuit.note(done.seen, now, plugged=done.plugged)
            if reached(wanted, done.seen):
                await self._poll_seldom()
                self._show(IDLE)
                return
            late = now - pursuit.moved >= ACCEPT_SECONDS
            if late or done.refused or done.memory.low or now - pursuit.began >= QUIET_SECONDS:
                self._show(self._progress(wanted, done, late=late))
            pause, room = pursuit.pause(refused=done.refused), None
            if done.polled and not pursuit.polled:
                pause, pursuit.polled = _POLL_LOOK, True
            if done.cpu.kept and self._room.finding is not None:
                pause, room = _LAST_LOOK, self._room.finding
            if await self._superseded(pause, room):
                return

    async def _round(self, pursuit: Pursuit) -> Round:
        """Do what can be done now."""
        # What was seen last is good enough to begin with: a step that is not needed does nothing.
        seen = (not pursuit.looked and self._guest.seen) or await self._look()
        paused = seen.observed.run_state in HELD
        if pursuit.ballooned not in (None, seen.ballooned):
            pursuit.changed = _second()
        pursuit.ballooned = seen.ballooned
        wanted = Wanted(
            pursuit.wanted.sockets, pursuit.wanted.memory, paused=paused, after=pursuit.changed
        )
        steps = resize(wanted, seen)
        cpu = memory = NO_TROUBLE
        plugged = unready = False
        for step in steps:
            if unready and isinstance(step, RequestMemory):
                continue  # in a later round
            trouble = await self._do(step)
            if isinstance(step, PrepareMemory) and trouble is not NO_TROUBLE:
                pursuit.unprepared += 1
                unready = pursuit.unprepared < _PREPARATIONS
            if isinstance(step, SetBalloon):
                pursuit.changed = _second()
            if trouble is NO_TROUBLE:
                plugged |= isinstance(step, PlugCpu)
            elif _is_about_memory(step):
                memory = trouble
            else:
                cpu = trouble
        if not steps and not pursuit.looked:
            seen = await self._look()
        pursuit.looked = True
        polled = any(isinstance(step, PollBalloon) for step in steps)
        self._polls |= polled
        return Round(seen, cpu, memory, plugged, polled)

    async def _poll_seldom(self) -> None:
        """Have the guest report its free memory as seldom as before."""
        if self._polls:
            await self._do(PollBalloon(balloon.IDLE_SECONDS))
            self._polls = False

    def _progress(self, wanted: Size, done: Round, *, late: bool) -> Progress:
        agent = self._guest.view.agent
        unmovable = agent is not None and agent.unmovable
        return progress(
            wanted, done.seen, late=late, cpu=done.cpu, memory=done.memory, unmovable=unmovable
        )

    async def _look(self) -> MachineSnapshot:
        seen = await self._guest.look()
        self._plugged.clear()
        return seen

    async def _do(self, step: Step) -> Trouble:
        try:
            async with asyncio.timeout(STEP_SECONDS):
                match step:
                    case PlugCpu(_, thread):
                        await self._plug(step, thread)
                    case _:
                        await self._guest.do(step)
        except (Disconnected, AgentUnavailable):
            raise
        except TimeoutError:
            return Trouble(kept="it did not answer in time")
        except CommandFailed as error:
            if isinstance(step, SetVcpus | OnlineMemory):
                return Trouble(kept=str(error))  # the guest's words, not QEMU's
            log.warning("step refused", extra=self._facts(error) | {"step": repr(step)})
            return Trouble(refused=str(error))
        except QmpError as error:
            return Trouble(kept=str(error))
        if isinstance(step, LowMemory):
            return _low(step)
        return Trouble(kept=step.reason) if isinstance(step, Blocked) else NO_TROUBLE

    async def _plug(self, step: PlugCpu, thread: Thread) -> None:
        if thread in self._plugged:
            return  # by a round that was superseded before it could see it
        await self._room.take()
        await self._guest.do(step)
        self._plugged.add(thread)

    async def _superseded(self, seconds: float, sooner: asyncio.Task[None] | None = None) -> bool:
        """Wait, no longer than for that task; return whether something else is wanted by now."""
        changed = asyncio.ensure_future(self._changed.wait())
        awaited = {changed} if sooner is None else {changed, sooner}
        try:
            await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        return self._changed.is_set()

    def _show(self, found: Progress) -> None:
        if found != self.progress:
            self.progress = found
            self._wake()

    def _facts(self, error: BaseException) -> dict[str, str]:
        intent = self._guest.intent
        return {"vmi": f"{intent.namespace}/{intent.vmi}", "error": str(error)}


def _is_about_memory(step: Step) -> bool:
    if isinstance(step, Blocked):
        return step.what == "memory"
    return isinstance(step, PrepareMemory | RequestMemory | OnlineMemory | balloon.Step)


def _low(step: LowMemory) -> Trouble:
    if step.available is None:
        return Trouble(kept="its balloon driver does not report free memory")
    has, needs = (amount // MIB for amount in (step.available, step.margin))
    return Trouble(kept=f"{has}Mi of memory are available, {needs}Mi must stay", low=True)


def _second() -> int:
    """Return the second in which QEMU would date a report of the guest now."""
    return int(time.time())


def _lacks_cpu(seen: MachineSnapshot, sockets: int) -> bool:
    """Return whether a CPU must be plugged before the guest can have so many sockets."""
    return any(not slot.present and slot.thread.socket < sockets for slot in seen.observed.cpus)
