"""Keeps one guest at the size it should have: look, plan, act, again, until the guest has it.

Every round plans afresh from what QEMU and the guest say, so a newer wish simply takes over and a
restart of the agent loses nothing. Nothing is done to a guest that once had its size, until
something else is wanted or its agent comes back, as after a reboot.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from livevirt.errors import QmpError
from livevirt.node.guest import Guest
from livevirt.node.progress import IDLE, NO_TROUBLE, Progress, Trouble, progress, reached
from livevirt.qemu.errors import AgentUnavailable, CommandFailed, Disconnected, NotNow
from livevirt.qemu.plan import Blocked, PlugCpu, RequestMemory, Seen, SetVcpus, Step, Wanted, resize
from livevirt.rollout.reservation import Size

log = logging.getLogger(__name__)

ACCEPT_SECONDS = 20.0  # a guest that does nothing for so long is said not to accept
STEP_SECONDS = 5.0  # a step waits for the guest at most so long, then it is planned again
QUIET_SECONDS = 1.0  # a change that is done sooner is not worth a word in between
_FIRST_LOOK, _LAST_LOOK = 0.1, 1.0  # seconds between rounds
_PLUG_LOOK = 0.4  # after a CPU came: looking takes time that the guest needs to bring it online
_FIRST_RETRY, _LAST_RETRY = 1.0, 30.0  # after QEMU refused
_PAUSED = ("paused", "prelaunch", "suspended")


class Adjuster:
    """Changes the size of one guest. `want` something; read `progress` when woken."""

    def __init__(self, guest: Guest, wake: Callable[[], None]) -> None:
        self.progress = IDLE
        self._guest, self._wake = guest, wake
        self._wanted: Size | None = None
        self._changed = asyncio.Event()
        self._has_agent = self._following = self._looked = self._plugged = False
        self._task = asyncio.create_task(self._run(), name=f"size of {guest.intent.vmi}")

    def want(self, size: Size) -> None:
        """Let the guest have this size from now on."""
        has_agent = self._guest.view.agent is not None
        back, self._has_agent = has_agent and not self._has_agent, has_agent
        other, self._wanted = size != self._wanted, size
        seen = self._guest.seen
        there = seen is not None and reached(size, seen)
        if self._following if there else other or back:
            self._changed.set()  # to see that it is done, or to begin

    def stop(self) -> None:
        """Let go; what was begun goes on by itself or is planned again."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._wanted is not None:
                self._following = True
                await self._follow(self._wanted)
                self._following = False

    async def _follow(self, wanted: Size) -> None:
        """Work towards one size until the guest has it or another is wanted."""
        self._looked = False
        moved = began = time.monotonic()
        has: tuple[int, int] | None = None
        look, retry = _FIRST_LOOK, _FIRST_RETRY
        while True:
            try:
                seen, cpu, memory = await self._round(wanted)
            except (Disconnected, AgentUnavailable) as error:
                log.debug("guest not resized yet", extra=self._facts(error))
                if await self._superseded(_LAST_LOOK):
                    return
                continue
            now = time.monotonic()
            if has != (seen.sockets, seen.memory) or seen.observed.run_state in _PAUSED:
                moved, look = now, _FIRST_LOOK
            if self._plugged:
                look = _PLUG_LOOK
            has = seen.sockets, seen.memory
            if reached(wanted, seen):
                self._show(IDLE)
                return
            late = now - moved >= ACCEPT_SECONDS
            if late or cpu.refused or memory.refused or now - began >= QUIET_SECONDS:
                self._show(progress(wanted, seen, late=late, cpu=cpu, memory=memory))
            if cpu.refused or memory.refused:
                wait, retry = retry, min(retry * 2, _LAST_RETRY)
            else:
                wait, look = look, min(look * 1.5, _LAST_LOOK)
            if await self._superseded(wait):
                return

    async def _round(self, wanted: Size) -> tuple[Seen, Trouble, Trouble]:
        """Do what can be done now; return what was seen before it, and what went wrong."""
        # What was seen last is good enough to begin with: a step that is not needed does nothing.
        seen = (not self._looked and self._guest.seen) or await self._guest.look()
        paused = seen.observed.run_state in _PAUSED
        steps = resize(Wanted(wanted.sockets, wanted.memory, paused=paused), seen)
        cpu = memory = NO_TROUBLE
        for step in steps:
            trouble = await self._do(step)
            if isinstance(step, RequestMemory) or (
                isinstance(step, Blocked) and step.what == "memory"
            ):
                memory = trouble
            elif trouble is not NO_TROUBLE:
                cpu = trouble
        if not steps and not self._looked:
            seen = await self._guest.look()
        self._looked = True
        self._plugged = any(isinstance(step, PlugCpu) for step in steps)
        return seen, cpu, memory

    async def _do(self, step: Step) -> Trouble:
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await self._guest.do(step)
        except (Disconnected, AgentUnavailable):
            raise
        except NotNow as error:
            await self._guest.stir()
            return Trouble(kept=str(error))
        except TimeoutError:
            return Trouble(kept="it did not answer in time")
        except CommandFailed as error:
            if isinstance(step, SetVcpus):
                return Trouble(kept=str(error))  # the guest's words, not QEMU's
            log.warning("step refused", extra=self._facts(error) | {"step": repr(step)})
            return Trouble(refused=str(error))
        except QmpError as error:
            return Trouble(kept=str(error))
        return Trouble(kept=step.reason) if isinstance(step, Blocked) else NO_TROUBLE

    async def _superseded(self, seconds: float) -> bool:
        """Wait; return whether something else is wanted by now."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        return self._changed.is_set()

    def _show(self, found: Progress) -> None:
        if found != self.progress:
            self.progress = found
            self._wake()

    def _facts(self, error: BaseException) -> dict[str, str]:
        intent = self._guest.intent
        return {"vmi": f"{intent.namespace}/{intent.vmi}", "error": str(error)}
