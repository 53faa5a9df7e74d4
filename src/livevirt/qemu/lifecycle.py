"""Starting, stopping and ending a machine, and reading why it stopped.

QEMU runs with `-action shutdown=pause,panic=pause`: after a shutdown or a panic it is still there,
stopped, and says why. Nothing of the guest is left then; `quit` ends the process.
"""

from dataclasses import dataclass
from typing import Literal

from livevirt.qemu.errors import Disconnected
from livevirt.qemu.session import Event, Session

WATCHED = ("SHUTDOWN", "GUEST_PANICKED", "STOP", "RESUME", "RESET", "BLOCK_IO_ERROR")
RUNS = ("running", "suspended")  # run states in which the CPUs do not stand still
HELD = ("paused", "prelaunch", "suspended", "io-error")  # in which the guest does nothing, for now
SENT_WHOLE = "postmigrate"  # the run state of a machine whose guest was sent; `cont` leaves it

Condition = Literal[
    "running", "paused", "shutdown", "panicked", "io-error", "starting", "migrating", "broken"
]

CONDITIONS: dict[str, Condition] = {
    "running": "running",
    "suspended": "running",  # the guest sleeps, by its own wish
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
    """How a machine stands. `by_guest` is None where nobody saw the event that told."""

    condition: Condition
    reason: str
    by_guest: bool | None = None

    @property
    def ended(self) -> bool:
        """The guest will not go on: record it, then quit QEMU."""
        return self.condition in ("shutdown", "panicked", "broken")


def standing(run_state: str, last_shutdown: Event | None = None) -> Standing:
    """Say how the machine stands, from `query-status` and the last `SHUTDOWN` event if seen."""
    condition = CONDITIONS.get(run_state, "paused")  # a newer QEMU's own word: it is there, stopped
    if condition == "shutdown" and last_shutdown is not None:
        data = last_shutdown.data
        return Standing(condition, data.get("reason", run_state), data["guest"])
    if condition == "panicked":
        return Standing(condition, run_state, True)
    return Standing(condition, run_state)


async def run_state(qmp: Session) -> str:
    """Return the state the machine is in, in QEMU's own word."""
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
