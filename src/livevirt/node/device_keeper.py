"""Keeps the devices of one guest that can change while it runs: observe, plan, act."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from livevirt.errors import LivevirtError
from livevirt.kube.objects.request import Object
from livevirt.node.domain import DISK_PREFIX, boot_order, tablets, volume_of
from livevirt.node.guest import Guest
from livevirt.qemu import balloon, devices
from livevirt.qemu.devices import DeviceGoal, DeviceState, Impossible, SetAction
from livevirt.qemu.disk import USB_CONTROLLER
from livevirt.qemu.errors import Disconnected, QmpError
from livevirt.qemu.machine import WATCHDOG, Machine
from livevirt.qemu.observe import Observed

log = logging.getLogger(__name__)

STEP_SECONDS = 5.0  # a step waits for the guest at most so long, then it is planned again
_FIRST_RETRY, _LAST_RETRY = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """What QEMU has, and what is not as wanted."""

    boot: tuple[str, ...] = ()  # names of the disks that the firmware tries, in their order
    watchdog: str = ""  # its action
    problem: str = ""


def goal(vmi: Object, machine: Machine) -> DeviceGoal:
    """Return the devices that an instance asks for.

    A guest that an earlier release started gets a balloon only if the instance names it.
    """
    listed = (vmi["spec"].get("domain") or {}).get("devices") or {}
    watchdog = ((listed.get("watchdog") or {}).get("i6300esb") or {}).get("action")
    asked = listed.get("autoattachMemBalloon")
    return DeviceGoal(
        balloon=True if asked is None and machine.balloon is not None else asked,
        tablets=frozenset(tablets(listed)),
        watchdog=watchdog or ("poweroff" if listed.get("watchdog") else ""),
        boot=boot_order(listed.get("disks") or []),
    )


def status(observed: Observed, report: DeviceReport | None, old: Object) -> Object:
    """Return `devices` of an instance's status; what was not looked at yet stays as it was."""
    found: Object = {
        "balloon": balloon.DEVICE in observed.devices,
        "inputs": sorted(devices.tablets(observed)),
        "rng": "vrng0" in observed.devices,
        "usb": USB_CONTROLLER in observed.devices,
    }
    if report is None:
        return {**old, **found}
    found["bootOrder"] = list(report.boot)
    if report.watchdog:
        found["watchdog"] = report.watchdog
    return found


class DeviceKeeper:
    """Changes the devices of one guest. `want` something; read `report` when woken."""

    def __init__(self, guest: Guest, wake: Callable[[], None]) -> None:
        self.report: DeviceReport | None = None  # None: not looked at yet
        self._guest, self._wake = guest, wake
        self._goal: DeviceGoal | None = None
        self._action = ""  # of the watchdog, as it was set last
        self._seen: object = None  # what the last round left
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"devices of {guest.intent.vmi}")

    def want(self, goal: DeviceGoal) -> None:
        """Let the guest have these devices from now on."""
        observed = self._guest.view.observed
        if goal != self._goal or (observed is not None and _facts(observed) != self._seen):
            self._goal = goal
            self._changed.set()

    def stop(self) -> None:
        """Stop; what was begun is planned again by the next keeper."""
        self._task.cancel()

    async def _run(self) -> None:
        retry: float | None = None  # seconds; None: until something changes
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry):
                    await self._changed.wait()
            self._changed.clear()
            if await self._settled():
                retry = None
            else:
                retry = min(retry * 2, _LAST_RETRY) if retry is not None else _FIRST_RETRY

    async def _settled(self) -> bool:
        """Do what can be done now; return whether nothing is left to do."""
        try:
            return await self._round()
        except Disconnected as error:
            log.debug("devices not looked after", extra=self._fields(error))
        except LivevirtError as error:
            log.warning("devices not looked after", extra=self._fields(error))
        except Exception as error:  # a mistake of ours must not end it for this guest
            log.error("devices not looked after", extra=self._fields(error), exc_info=error)
        return False

    async def _round(self) -> bool:
        assert self._goal is not None
        goal, state = self._goal, await self._look(fresh=False)
        problem = ""
        steps = devices.plan(goal, state)
        for step in steps:
            problem = await self._do(step) or problem
        if steps:
            state = await self._look(fresh=True)
        self._seen = _facts(state.observed)
        self._show(DeviceReport(_order(state), self._reported_action(state), problem))
        return not problem and not devices.plan(goal, state)

    async def _look(self, *, fresh: bool) -> DeviceState:
        if fresh or self._guest.view.observed is None:
            await self._guest.refresh()
        observed = self._guest.view.observed
        assert observed is not None  # it was looked at just now
        boot = await devices.boot_indices(self._guest.qmp(), observed)
        ours = {id: index for id, index in boot.items() if id.startswith(DISK_PREFIX)}
        return DeviceState(observed, ours, self._action)

    async def _do(self, step: devices.Step) -> str:
        """Do one step; return why it could not be done."""
        if isinstance(step, Impossible):
            return step.reason
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await devices.act(step, self._guest.qmp())
        except Disconnected:
            raise
        except TimeoutError:
            return "the guest has not released the device yet"
        except QmpError as error:
            return f"QEMU refused: {error}"
        if isinstance(step, SetAction):
            self._action = step.action
        log.info("devices changed", extra=self._fields() | {"step": repr(step)})
        return ""

    def _reported_action(self, state: DeviceState) -> str:
        return self._action if WATCHDOG in state.observed.devices else ""

    def _show(self, report: DeviceReport) -> None:
        if report != self.report:
            self.report = report
            self._wake()

    def _fields(self, error: BaseException | None = None) -> dict[str, str]:
        intent = self._guest.intent
        fields = {"vmi": f"{intent.namespace}/{intent.vmi}"}
        return fields | ({"error": str(error)} if error is not None else {})


def _facts(observed: Observed) -> object:
    """Return what of an observation a plan depends on."""
    return observed.run_state, observed.devices, {drive.id for drive in observed.drives}


def _order(state: DeviceState) -> tuple[str, ...]:
    placed = sorted((index, id) for id, index in state.boot.items() if index != devices.NO_INDEX)
    return tuple(volume_of(id) for _, id in placed)
