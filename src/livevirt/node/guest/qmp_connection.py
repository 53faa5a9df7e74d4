"""The session with one QEMU: kept open, and QEMU observed again whenever it sends an event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from livevirt.node.guest.view import RebootRequest, ViewStore
from livevirt.node.intent import Intent
from livevirt.qemu import balloon, lifecycle, mirror
from livevirt.qemu.act import forget_files
from livevirt.qemu.errors import Disconnected, LivevirtError
from livevirt.qemu.hostfwd import forget_forwards
from livevirt.qemu.lifecycle import standing
from livevirt.qemu.observe import Observed, observe
from livevirt.qemu.session import Event, Events, Session

log = logging.getLogger(__name__)

_EVENTS = (
    *lifecycle.WATCHED,
    "VSERPORT_CHANGE",
    "MEMORY_DEVICE_SIZE_CHANGE",
    "DEVICE_DELETED",
    "DEVICE_TRAY_MOVED",
    balloon.EVENT,
    mirror.JOB_EVENT,
)
_URGENT = ("SHUTDOWN", "GUEST_PANICKED", "BLOCK_IO_ERROR")  # observed even while suspended
_FIRST_RETRY, _LAST_RETRY = 0.01, 1.0  # seconds between attempts to connect
_FIRST_WAIT, _LAST_WAIT = 2.0, 30.0  # seconds between looks for the guest's balloon driver
_STARTUP_SECONDS = 1.0  # in which a QEMU that was just started should answer


class QmpConnection:
    """Keeps a session with QEMU and the view of it up to date."""

    def __init__(
        self,
        intent: Intent,
        views: ViewStore,
        reboot: RebootRequest,
        on_connect: Callable[[Session], Awaitable[None]],
        on_agent_port: Callable[[bool], None],
    ) -> None:
        """`on_agent_port` is called when an agent in the guest opens or closes its port."""
        self._intent, self._views, self._reboot = intent, views, reboot
        self._on_connect, self._on_agent_port = on_connect, on_agent_port
        self._session: Session | None = None
        self._last_shutdown: Event | None = None
        self._observing = asyncio.Lock()
        self._suspended = False

    def session(self) -> Session:
        """Return the session with QEMU; raises Disconnected while there is none."""
        if self._session is None or not self._session.connected:
            raise Disconnected(f"QEMU of {self._intent.vmi} does not answer")
        return self._session

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()

    def suspend(self) -> None:
        """Ask QEMU nothing on our own until `resume`."""
        self._suspended = True

    async def resume(self) -> None:
        """Observe QEMU at once, and at every event from now on."""
        self._suspended = False
        await self.refresh()

    async def refresh(self) -> None:
        """Observe QEMU at once."""
        await self._observe(self.session())

    async def run(self) -> None:
        """Keep the session open until cancelled."""
        pause = _FIRST_RETRY
        startup_ends = asyncio.get_running_loop().time() + _STARTUP_SECONDS
        while True:
            try:
                async with await Session.connect(self._intent.qmp_socket) as qmp:
                    pause = _FIRST_RETRY
                    await forget_files(qmp)
                    await forget_forwards(qmp)
                    self._session = qmp
                    await self._on_connect(qmp)
                    if self._intent.machine.balloon:
                        await balloon.poll(qmp, balloon.IDLE_SECONDS)
                    with qmp.listen(*_EVENTS) as events:
                        await self._follow(qmp, events)
            except (LivevirtError, OSError) as error:
                log.debug("QEMU does not answer", extra=self._fields(error))
            await asyncio.sleep(pause)
            if asyncio.get_running_loop().time() > startup_ends:
                pause = min(pause * 2, _LAST_RETRY)

    async def _follow(self, qmp: Session, events: Events) -> None:
        driver = asyncio.create_task(self._await_balloon_driver())
        try:
            await self._follow_events(qmp, events)
        finally:
            driver.cancel()

    async def _await_balloon_driver(self) -> None:
        """Observe QEMU until the guest reports its free memory, of which there is no event."""
        wait = _FIRST_WAIT
        while True:
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LAST_WAIT)
            observed = self._views.current.observed
            if observed is None or self._suspended:
                continue
            found = observed.memory.balloon
            if found is None or found.statistics is not None:
                return
            try:
                await self.refresh()
            except LivevirtError as error:
                log.debug("balloon not observed", extra=self._fields(error))

    async def _follow_events(self, qmp: Session, events: Events) -> None:
        if not self._suspended:
            await self._observe(qmp)
        async for first in events:
            batch = (first, *events.waiting())  # one observation covers all
            for event in batch:
                if event.name == "SHUTDOWN":
                    self._last_shutdown = event
            # A reboot must wait: its second half resumes the guest, which may be migrating.
            urgent = any(event.name in _URGENT for event in batch) and not self._reboot.pending
            if urgent or not self._suspended:
                await self._observe(qmp)

    async def _observe(self, qmp: Session) -> None:
        async with self._observing:  # so that the latest observation is the one shown
            observed = await self._after_reboot(qmp, await observe(qmp))
            machine_type = self._views.current.machine_type or await _machine_type(qmp)
            self._show(observed, machine_type)

    async def _after_reboot(self, qmp: Session, observed: Observed) -> Observed:
        """Start a guest again that shut down in order to reboot; return what is observed then."""
        if observed.run_state != "shutdown" or not self._reboot.pending:
            return observed
        await lifecycle.reset(qmp)
        await lifecycle.resume(qmp)
        self._reboot.remove()  # not before: a later agent would leave the guest off
        return await observe(qmp)

    def _show(self, observed: Observed, machine_type: str) -> None:
        view = self._views.current
        if (view.observed and view.observed.agent_open) != observed.agent_open:
            self._on_agent_port(observed.agent_open)
        self._views.show(
            replace(
                self._views.current,
                observed=observed,
                machine_type=machine_type,
                standing=standing(observed.run_state, self._last_shutdown),
                agent=self._views.current.agent if observed.agent_open else None,
                agent_silent=self._views.current.agent_silent and observed.agent_open,
            )
        )

    def _fields(self, error: Exception) -> dict[str, str]:
        return {"vmi": f"{self._intent.namespace}/{self._intent.vmi}", "error": str(error)}


async def _machine_type(qmp: Session) -> str:
    name: str = await qmp.execute("qom-get", {"path": "/machine", "property": "type"})
    return name.removesuffix("-machine")
