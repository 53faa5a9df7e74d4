"""One running QEMU: what it says about itself and its guest, kept up to date.

A guest found at start and one just started are the same thing here. It never decides anything;
whenever what it shows has changed, it wakes whoever does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from livevirt.node import pinning
from livevirt.node import process as processes
from livevirt.node.intent import Intent
from livevirt.node.process import Process
from livevirt.node.reboot import LEAST_SECONDS, Reboot
from livevirt.qemu import lifecycle, mirror, translation
from livevirt.qemu import plan as qemu_plan
from livevirt.qemu.act import act, forget_files
from livevirt.qemu.agent import GuestAgent, Interface, OsInfo, Timezone, Vcpu
from livevirt.qemu.errors import (
    AgentUnavailable,
    CommandFailed,
    Disconnected,
    LivevirtError,
    QmpError,
)
from livevirt.qemu.lifecycle import Standing, standing
from livevirt.qemu.observe import Observed, observe
from livevirt.qemu.session import Event, Session

log = logging.getLogger(__name__)

_EVENTS = (
    *lifecycle.WATCHED,
    "VSERPORT_CHANGE",
    "MEMORY_DEVICE_SIZE_CHANGE",
    "DEVICE_DELETED",
    "DEVICE_TRAY_MOVED",
    mirror.JOB_EVENT,
)
_URGENT = ("SHUTDOWN", "GUEST_PANICKED", "BLOCK_IO_ERROR")  # looked at also by who looks away
_FIRST_CONNECT, _LAST_CONNECT = 0.01, 1.0  # seconds between attempts
_HURRY = 1.0  # seconds in which a QEMU that was just started should answer
_ASK_OFTEN, _ASK_SELDOM = 1.0, 15.0  # seconds between questions to the guest agent
_OFTEN = 30  # questions asked often, while the guest has no address
QUIT_SECONDS = 5.0
_STIRS = 4  # programs to run at once in an idle guest; each is translated to some 1.3 MiB
_NO_OS = OsInfo()


@dataclass(frozen=True, slots=True)
class AgentView:
    """What the guest agent last said."""

    version: str
    os: OsInfo = _NO_OS
    timezone: Timezone | None = None
    interfaces: tuple[Interface, ...] = ()
    vcpus: tuple[Vcpu, ...] | None = None  # None: it cannot tell

    @property
    def has_address(self) -> bool:
        """Whether a card has an address that was given to it, not made up by itself."""
        return any(
            address.ip_address_type == "ipv4"
            for card in self.interfaces
            if card.hardware_address != "00:00:00:00:00:00"
            for address in card.ip_addresses
        )


@dataclass(frozen=True, slots=True)
class View:
    """What is known of a guest at one moment; None is not known yet."""

    standing: Standing | None = None
    observed: Observed | None = None
    machine_type: str = ""  # the one an alias such as `q35` stands for
    agent: AgentView | None = None


NOTHING_YET = View()


class Guest:
    """Follows one QEMU process from when it is known until it has ended."""

    def __init__(
        self,
        intent: Intent,
        process: Process,
        wake: Callable[[], None],
        complain: Callable[[str], None],
        reboot: Reboot,
    ) -> None:
        self.intent = intent
        self.process = process
        self.view = NOTHING_YET
        self.agent = GuestAgent(intent.machine.agent_socket)
        self._wake, self._complain = wake, complain
        self._qmp: Session | None = None
        self._last_shutdown: Event | None = None
        self._mute = False  # an agent is there and does not answer
        self._reboot = reboot
        self._looking = asyncio.Lock()
        self._away = False  # nobody is to look
        self._asked = asyncio.Event()  # the agent's port has opened or closed
        self._task = asyncio.create_task(self._run(), name=f"guest {intent.vmi}")

    @property
    def ended(self) -> bool:
        return self._task.done()

    async def close(self) -> None:
        """Let go of it; QEMU runs on."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def qmp(self) -> Session:
        """Return the session with QEMU; raises Disconnected while there is none."""
        if self._qmp is None or not self._qmp.connected:
            raise Disconnected(f"QEMU of {self.intent.vmi} does not answer")
        return self._qmp

    async def quit(self) -> None:
        """End QEMU, by asking first; return once it is gone."""
        try:
            async with asyncio.timeout(QUIT_SECONDS):
                await lifecycle.quit(self.qmp())
                await asyncio.wait({self._task})
        except (TimeoutError, QmpError):
            processes.kill(self.process)
        await asyncio.wait({self._task})

    async def reboot(self, seconds: float = LEAST_SECONDS) -> None:
        """Ask the guest to reboot: by its agent, else by the power button and a reset after it.

        The guest has so many seconds to shut down; if it does so later, it stays off.
        """
        if self.view.agent is not None:
            with contextlib.suppress(AgentUnavailable):
                await self.agent.shutdown("reboot")
                return
        qmp = self.qmp()
        await asyncio.to_thread(self._reboot.wish, seconds)
        await lifecycle.powerdown(qmp)

    async def power_down(self) -> None:
        """Press the power button; a reboot that the guest has not begun is off."""
        self._reboot.forget()
        await lifecycle.powerdown(self.qmp())

    def look_away(self) -> None:
        """Ask QEMU nothing by ourselves until somebody says so: it has to hurry."""
        self._away = True

    async def look_again(self) -> None:
        """Look at once, and whenever QEMU says something."""
        self._away = False
        await self.refresh()

    async def refresh(self) -> None:
        """Look again at once, for who has just changed something."""
        await self._look(self.qmp())

    async def look(self) -> qemu_plan.Seen:
        """Look at QEMU and, where there is an agent, at the guest's CPUs; return both."""
        await self.refresh()
        if self.view.agent is not None:
            vcpus = await self._vcpus()
            if self.view.agent is not None:  # it may have gone while we asked
                self._show(replace(self.view, agent=replace(self.view.agent, vcpus=vcpus)))
        seen = self.seen
        if seen is None:
            raise AgentUnavailable("the guest agent is there and has not been asked yet")
        return seen

    @property
    def seen(self) -> qemu_plan.Seen | None:
        """What was seen last, None before the first look, and before an agent was asked once.

        Without its word a CPU that the guest has not brought online would count.
        """
        observed = self.view.observed
        if observed is None or (observed.agent_open and self.view.agent is None and not self._mute):
            return None
        vcpus = self.view.agent.vcpus if self.view.agent is not None else None
        return qemu_plan.Seen(self.intent.machine, observed, vcpus)

    async def room(self) -> int:
        """Return how many CPUs QEMU can be given at this moment; emulated ones need room."""
        return await translation.room(self.qmp())

    async def stir(self) -> bool:
        """Give an idle guest something to do, by its agent: emulated, it then frees its cache.

        Returns whether it could be asked to.
        """
        if self.view.agent is None:
            return False
        try:
            await asyncio.gather(*(self.agent.exec("/bin/true") for _ in range(_STIRS)))
        except (AgentUnavailable, CommandFailed):
            return False
        return True

    async def do(self, step: qemu_plan.Step) -> None:
        """Do one step of a plan to it."""
        await act(step, self.qmp(), self.agent)
        if isinstance(step, qemu_plan.PlugCpu):
            await self._pin_plugged(self.qmp())

    async def _run(self) -> None:
        following = asyncio.create_task(self._follow())
        asking = asyncio.create_task(self._ask())
        try:
            await processes.exited(self.process)
        finally:
            for task in (following, asking):
                task.cancel()
            await asyncio.gather(following, asking, return_exceptions=True)
            await self.agent.close()
            if self._qmp is not None:
                await self._qmp.close()
            asyncio.get_running_loop().call_soon(self._wake)  # when `ended` is true

    async def _follow(self) -> None:
        """Keep a session with QEMU and look at it again whenever it says something."""
        pause = _FIRST_CONNECT
        hurried = asyncio.get_running_loop().time() + _HURRY
        while True:
            try:
                async with await Session.connect(self.intent.machine.qmp_socket) as qmp:
                    pause = _FIRST_CONNECT
                    await forget_files(qmp)
                    self._qmp = qmp
                    await self._pin(qmp)
                    with qmp.listen(*_EVENTS) as events:
                        if not self._away:
                            await self._look(qmp)
                        async for first in events:
                            heard = (first, *events.waiting())  # one look is for all
                            for event in heard:
                                if event.name == "SHUTDOWN":
                                    self._last_shutdown = event
                            # A reboot must wait: a guest that is sent is not to be resumed.
                            urgent = any(event.name in _URGENT for event in heard)
                            if not self._away or (urgent and not self._rebooting):
                                await self._look(qmp)
            except (LivevirtError, OSError) as error:
                log.debug("QEMU does not answer", extra=self._facts(error))
            await asyncio.sleep(pause)
            if asyncio.get_running_loop().time() > hurried:
                pause = min(pause * 2, _LAST_CONNECT)

    async def _pin(self, qmp: Session) -> None:
        """Put its threads on the CPUs they have; a guest that cannot be pinned does not run."""
        try:
            await self._pin_all(qmp)
        except OSError as error:
            log.error("guest not pinned, so it ends", extra=self._facts(error))
            self._complain(f"its threads cannot be put on CPUs of its own: {error}")
            processes.kill(self.process)

    async def _pin_plugged(self, qmp: Session) -> None:
        """Put a CPU that has just come where it belongs; unpinned it runs on, among the others."""
        try:
            await self._pin_all(qmp)
        except OSError as error:
            log.error("plugged CPU not pinned", extra=self._facts(error))

    async def _pin_all(self, qmp: Session) -> None:
        own = self.intent.exclusive
        if own is not None:
            await pinning.pin(qmp, self.process, own, self.intent.machine.cpu)

    async def _look(self, qmp: Session) -> None:
        async with self._looking:  # so that what was seen last is shown last
            seen = await self._seen(qmp)
            self._show_seen(seen, self.view.machine_type or await _machine_type(qmp))

    @property
    def _rebooting(self) -> bool:
        """Whether a shutdown is the first half of a reboot."""
        return self._reboot.wished

    async def _seen(self, qmp: Session) -> Observed:
        seen = await observe(qmp)
        if seen.run_state == "shutdown" and self._rebooting:
            await lifecycle.reset(qmp)
            await lifecycle.resume(qmp)
            self._reboot.forget()  # not before: who comes after us would let it be off
            seen = await observe(qmp)
        return seen

    def _show_seen(self, seen: Observed, machine_type: str) -> None:
        if (self.view.observed and self.view.observed.agent_open) != seen.agent_open:
            self._asked.set()
            if not seen.agent_open:
                self.agent.hang_up()  # what was asked of who is gone has no answer
        self._show(
            replace(
                self.view,
                observed=seen,
                machine_type=machine_type,
                standing=standing(seen.run_state, self._last_shutdown),
                agent=self.view.agent if seen.agent_open else None,
            )
        )

    async def _ask(self) -> None:
        """Ask the guest agent while there is one: often until the guest has an address."""
        often = _OFTEN
        while True:
            self._asked.clear()
            if self.view.observed is None or not self.view.observed.agent_open:
                often = _OFTEN
                await self._asked.wait()
                continue
            answer = await self._answer()
            if answer is not None:
                self._show(replace(self.view, agent=answer))
            elif self.view.agent is None and not self._mute:
                self._mute = True
                self._wake()
            often = 0 if answer and answer.has_address else max(0, often - 1)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ASK_OFTEN if often else _ASK_SELDOM):
                    await self._asked.wait()

    async def _answer(self) -> AgentView | None:
        known = self.view.agent
        try:
            if known is None:
                known = AgentView((await self.agent.info()).version)
                with contextlib.suppress(CommandFailed):
                    known = replace(known, os=await self.agent.osinfo())
                with contextlib.suppress(CommandFailed):
                    known = replace(known, timezone=await self.agent.timezone())
            with contextlib.suppress(CommandFailed):
                known = replace(known, interfaces=await self.agent.interfaces())
            known = replace(known, vcpus=await self._vcpus())
        except (AgentUnavailable, CommandFailed) as error:
            log.debug("the guest agent does not answer", extra=self._facts(error))
            return None
        except Exception as error:  # a mistake of ours must not end it for this guest
            log.error("the guest agent was not asked", extra=self._facts(error), exc_info=error)
            return None
        return known

    async def _vcpus(self) -> tuple[Vcpu, ...] | None:
        """Return the guest's CPUs, None if its agent cannot tell; raises AgentUnavailable."""
        try:
            return await self.agent.vcpus()
        except CommandFailed as error:
            log.debug("the guest agent tells no CPUs", extra=self._facts(error))
            return None

    def _show(self, view: View) -> None:
        if view != self.view:
            self.view = view
            self._wake()

    def _facts(self, error: Exception) -> dict[str, str]:
        return {"vmi": f"{self.intent.namespace}/{self.intent.vmi}", "error": str(error)}


async def _machine_type(qmp: Session) -> str:
    name: str = await qmp.execute("qom-get", {"path": "/machine", "property": "type"})
    return name.removesuffix("-machine")
