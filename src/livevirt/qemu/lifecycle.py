"""Starting, stopping and ending a machine, why it stopped, and its translation cache."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Literal

from livevirt.qemu.errors import CommandFailed, Disconnected
from livevirt.qemu.session import Event, Session

WATCHED = ("SHUTDOWN", "GUEST_PANICKED", "STOP", "RESUME", "RESET", "BLOCK_IO_ERROR")
RUNS = ("running", "suspended")  # run states in which the CPUs are not paused
HELD = ("paused", "prelaunch", "suspended", "io-error")  # in which the guest does nothing, for now
SENT_WHOLE = "postmigrate"  # the run state of a machine whose guest was sent; `cont` leaves it

Condition = Literal[
    "running", "paused", "shutdown", "panicked", "io-error", "starting", "migrating", "broken"
]

CONDITIONS: dict[str, Condition] = {
    "running": "running",
    "suspended": "running",  # the guest sleeps by its own request
    "prelaunch": "starting",  # started with -S, or reset while stopped
    "preconfig": "starting",
    "paused": "paused",
    "debug": "paused",
    "shutdown": "shutdown",
    "guest-panicked": "panicked",
    "io-error": "io-error",
    "inmigrate": "migrating",
    "finish-migrate": "migrating",
    "postmigrate": "migrating",
    "save-vm": "migrating",
    "restore-vm": "migrating",
    "colo": "migrating",
    "internal-error": "broken",  # KVM could not go on; only a restart helps
    "watchdog": "broken",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """How a machine stands. `by_guest` is None where the event was not seen."""

    condition: Condition
    reason: str
    by_guest: bool | None = None

    @property
    def ended(self) -> bool:
        """The guest will not go on: record it, then quit QEMU."""
        return self.condition in ("shutdown", "panicked", "broken")


def standing(run_state: str, last_shutdown: Event | None = None) -> Standing:
    """Return the machine's state, from `query-status` and the last `SHUTDOWN` event if seen."""
    condition = CONDITIONS.get(run_state, "paused")  # a state of a newer QEMU: it is there, stopped
    if condition == "shutdown" and last_shutdown is not None:
        data = last_shutdown.data
        return Standing(condition, data.get("reason", run_state), data["guest"])
    if condition == "panicked":
        return Standing(condition, run_state, True)
    return Standing(condition, run_state)


async def run_state(qmp: Session) -> str:
    """Return the state the machine is in, in QEMU's own terms."""
    found: str = (await qmp.execute("query-status"))["status"]
    return found


async def powerdown(qmp: Session) -> None:
    """Press the power button; a guest may take its time, or ignore it."""
    await qmp.execute("system_powerdown")


async def reset(qmp: Session) -> None:
    """Restart the guest at once, as the reset button does."""
    await qmp.execute("system_reset")


async def pause(qmp: Session) -> None:
    """Stop the guest's CPUs; a stopped guest stays as it is."""
    await qmp.execute("stop")


async def resume(qmp: Session) -> None:
    """Let the guest's CPUs run; a running guest runs on."""
    await qmp.execute("cont")


async def quit(qmp: Session) -> None:
    """End QEMU; return once it has hung up."""
    try:
        await qmp.execute("quit")
    except Disconnected:
        return  # gone before it answered
    await qmp.closed()


_MIB = 1024 * 1024
_LEAST_REGION = 2 * _MIB
_REGIONS_PER_CPU = 8
_SPARE = 2  # regions that may be taken between looking and plugging
_USED = re.compile(r"gen code size\s+(\d+)/(\d+)")


async def room(qmp: Session) -> int:
    """Return how many CPUs can be plugged at this moment; with KVM any that are missing."""
    # Both at once: the first walks over all translated code, which takes a while.
    jit, slots = await asyncio.gather(_jit_info(qmp), qmp.execute("query-hotpluggable-cpus"))
    return fitting(jit, len(slots), sum("qom-path" in slot for slot in slots))


async def _jit_info(qmp: Session) -> str:
    try:
        found: str = (await qmp.execute("x-query-jit"))["human-readable-text"]
    except CommandFailed:
        return ""  # nothing is translated
    return found


def fitting(jit: str, cpus: int, present: int) -> int:
    """Read `x-query-jit` of a machine for that many CPUs: for how many more a region is left."""
    missing = cpus - present
    found = _USED.search(jit)
    if found is None:
        return missing  # nothing is translated, or QEMU formats it otherwise
    used, size = map(int, found.groups())
    regions = max(min(size // _LEAST_REGION, cpus * _REGIONS_PER_CPU), 1)

    def fits(more: int) -> bool:
        held = present + more - 1 + _SPARE  # at worst each CPU has just begun one
        return used < size * max(regions - held, regions // 2) // regions

    return next((more - 1 for more in range(1, missing + 1) if not fits(more)), missing)
