"""One QEMU process and the guest in it: what is known about it, and what can be done to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from livevirt.node import exclusive
from livevirt.node import process as processes
from livevirt.node.guest.agent_poller import AgentPoller
from livevirt.node.guest.qmp_connection import QmpConnection
from livevirt.node.guest.view import LEAST_SECONDS, RebootRequest, View, ViewStore, snapshot
from livevirt.node.intent import Intent
from livevirt.node.process import Process
from livevirt.qemu import lifecycle
from livevirt.qemu import plan as qemu_plan
from livevirt.qemu.act import act
from livevirt.qemu.errors import AgentUnavailable, CommandFailed, QmpError
from livevirt.qemu.session import Session

log = logging.getLogger(__name__)

QUIT_SECONDS = 5.0
_IDLE_PROGRAMS = 4  # to run at once in an idle guest; each is translated to some 1.3 MiB


class Guest:
    """Follows one QEMU process from when it is known until it has ended."""

    def __init__(
        self,
        intent: Intent,
        process: Process,
        wake: Callable[[], None],
        complain: Callable[[str], None],
        reboot: RebootRequest,
    ) -> None:
        """`complain` adds a line to what `kubectl logs` shows."""
        self.intent = intent
        self.process = process
        self._wake, self._complain, self._reboot = wake, complain, reboot
        self._views = ViewStore(wake)
        self._poller = AgentPoller(intent, self._views, wake)
        self._qmp = QmpConnection(
            intent, self._views, reboot, self._pin_or_kill, self._poller.port_changed
        )
        self.agent = self._poller.client
        self._task = asyncio.create_task(self._run(), name=f"guest {intent.vmi}")

    async def _run(self) -> None:
        tasks = [asyncio.create_task(each.run()) for each in (self._qmp, self._poller)]
        try:
            await processes.exited(self.process)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.agent.close()
            await self._qmp.close()
            asyncio.get_running_loop().call_soon(self._wake)  # when `ended` is true

    async def close(self) -> None:
        """Stop following it; QEMU runs on."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    # ------------------------------------------------------------ what is known

    @property
    def ended(self) -> bool:
        return self._task.done()

    @property
    def agent_answered(self) -> bool:
        """Whether an agent in the guest has answered since the guest is followed."""
        return self._poller.answered

    @property
    def view(self) -> View:
        """What is known about the guest now."""
        return self._views.current

    @property
    def seen(self) -> qemu_plan.MachineSnapshot | None:
        """What plans are made from, None before the first observation and poll of an agent.

        Without the agent's answer a CPU that the guest has not brought online would count.
        """
        view = self.view
        if view.observed is None:
            return None
        if view.agent_open and view.agent is None and not self._poller.silent:
            return None
        return snapshot(self.intent.machine, view.observed, view.agent)

    async def look(self) -> qemu_plan.MachineSnapshot:
        """Observe QEMU and, where there is an agent, poll the guest's size; return both."""
        await self.refresh()
        await self._poller.refresh_size()
        seen = self.seen
        if seen is None:
            raise AgentUnavailable("the guest agent is there and has not been asked yet")
        return seen

    async def refresh(self) -> None:
        """Observe QEMU at once, after something was changed."""
        await self._qmp.refresh()

    def suspend_observation(self) -> None:
        """Ask QEMU nothing on our own: it has to hurry."""
        self._qmp.suspend()

    async def resume_observation(self) -> None:
        """Observe QEMU at once, and at every event from now on."""
        await self._qmp.resume()

    def qmp(self) -> Session:
        """Return the session with QEMU; raises Disconnected while there is none."""
        return self._qmp.session()

    # ------------------------------------------------------------ what can be done

    async def quit(self) -> None:
        """End QEMU, by `quit` if it answers; return once it is gone."""
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
        await asyncio.to_thread(self._reboot.write, seconds)
        await lifecycle.powerdown(qmp)

    async def power_down(self) -> None:
        """Press the power button; a reboot that the guest has not begun is withdrawn."""
        self._reboot.remove()
        await lifecycle.powerdown(self.qmp())

    async def room(self) -> int:
        """Return how many CPUs QEMU can be given now; emulated ones need translation cache."""
        return await lifecycle.room(self.qmp())

    async def stir(self) -> bool:
        """Give an idle guest something to do, so that an emulating QEMU frees its cache.

        Returns whether the guest agent did so.
        """
        if self.view.agent is None:
            return False
        try:
            await asyncio.gather(*(self.agent.exec("/bin/true") for _ in range(_IDLE_PROGRAMS)))
        except (AgentUnavailable, CommandFailed):
            return False
        return True

    async def do(self, step: qemu_plan.Step) -> None:
        """Take one step of a plan."""
        match step:
            case qemu_plan.PrepareMemory():
                await self._poller.prepare_memory()
            case qemu_plan.OnlineMemory(blocks):
                await self._poller.online_memory(blocks)
            case _:
                await act(step, self.qmp(), self.agent)
        if not isinstance(step, qemu_plan.PlugCpu):
            return
        try:
            await _pin(self.qmp(), self.process, self.intent)
        except OSError as error:  # unpinned it runs on, among the others
            log.error("plugged CPU not pinned", extra=self._fields(error))

    async def _pin_or_kill(self, qmp: Session) -> None:
        """Pin the threads to the pod's own CPUs; a guest that cannot be pinned does not run."""
        try:
            await _pin(qmp, self.process, self.intent)
        except OSError as error:
            log.error("guest not pinned, so it ends", extra=self._fields(error))
            self._complain(f"its threads cannot be pinned to its dedicated CPUs: {error}")
            processes.kill(self.process)

    def _fields(self, error: Exception) -> dict[str, str]:
        return {"vmi": f"{self.intent.namespace}/{self.intent.vmi}", "error": str(error)}


async def _pin(qmp: Session, process: Process, intent: Intent) -> None:
    if intent.exclusive is not None:
        await exclusive.pin(qmp, process, intent.exclusive, intent.machine.cpu)
