"""The balloon: memory that a running guest gives back below the size it booted with.

The guest's driver reports how much memory it could use without swapping. The balloon takes no more
than leaves a margin of that, in steps, and gives back if the guest comes to need it. It never
deflates by itself when the guest runs out of memory (`deflate-on-oom` is off).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.session import Session

DEVICE = "balloon0"
DRIVER = "virtio-balloon-pci"
EVENT = "BALLOON_CHANGE"
IDLE_SECONDS, BUSY_SECONDS = 10, 1  # between reports of the guest's free memory

_PATH = f"/machine/peripheral/{DEVICE}"
_INTERVAL, _STATISTICS = "guest-stats-polling-interval", "guest-stats"
_UNKNOWN = 2**64 - 1  # QEMU's value of what the guest does not report
_MIB = 1024 * 1024
_STEP = 2 * _MIB
_LEAST_STEP = 8 * _MIB  # smaller ones are not worth the wait
_LEAST_MARGIN, _MARGIN_SHARE = 48 * _MIB, 10  # of the guest's memory, one part in so many
_NO_TIME = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the guest's driver reports: bytes it could use without swapping, and when."""

    available: int
    at: int  # seconds of the host's clock


@dataclass(frozen=True, slots=True)
class Balloon:
    """The balloon of a machine; without statistics no driver in the guest reports any."""

    held: int = 0  # bytes that the guest has given back
    statistics: Statistics | None = None


@dataclass(frozen=True, slots=True)
class SetBalloon:
    """Let the balloon hold so many bytes of a machine's boot memory."""

    held: int
    boot: int


@dataclass(frozen=True, slots=True)
class PollBalloon:
    """Ask the guest for its free memory now, and at that interval from now on."""

    seconds: int = BUSY_SECONDS


@dataclass(frozen=True, slots=True)
class LowMemory:
    """The balloon cannot grow: the guest has too little memory left. Nothing to execute."""

    available: int | None  # None: no driver in the guest reports it
    margin: int = 0


Step = SetBalloon | PollBalloon | LowMemory


def margin(size: int) -> int:
    """Return how many bytes must stay available in a guest that has so many."""
    return max(_LEAST_MARGIN, size // _MARGIN_SHARE)


def steps(wanted: int, boot: int, balloon: Balloon, after: int = _NO_TIME) -> Iterator[Step]:
    """Yield the next step to a balloon that holds `wanted` bytes of `boot`.

    Only statistics taken after the second `after` count: older ones do not know of the last step.
    """
    if wanted < balloon.held:
        yield SetBalloon(wanted, boot)  # the guest is given memory back at once
    if wanted <= balloon.held:
        return
    found = balloon.statistics
    if found is None:
        yield PollBalloon()
        yield LowMemory(None)
        return
    if found.at <= after:
        yield PollBalloon()
        return
    need = wanted - balloon.held
    reserve = margin(boot - balloon.held)
    spare = found.available - reserve
    if 2 * need <= spare:
        yield SetBalloon(wanted, boot)
    elif spare >= _LEAST_STEP or 0 < need <= spare:
        yield SetBalloon(balloon.held + min(need, _whole(max(spare // 2, _LEAST_STEP))), boot)
    else:
        if spare < 0 and balloon.held:
            yield SetBalloon(max(balloon.held - _whole(_STEP - spare), 0), boot)
        yield PollBalloon()
        yield LowMemory(found.available, reserve)


def _whole(size: int) -> int:
    return max(size // _STEP, 1) * _STEP


# ---------------------------------------------------------------- QEMU


async def observe(qmp: Session, boot: int) -> Balloon | None:
    """Return the balloon of a machine that started with so much memory, None if it has none."""
    try:
        actual = await qmp.execute("query-balloon")
        reported = await qmp.execute("qom-get", {"path": _PATH, "property": _STATISTICS})
    except CommandFailed:
        return None
    return Balloon(max(boot - actual["actual"], 0), statistics_of(reported))


def statistics_of(answer: Mapping[str, Any]) -> Statistics | None:
    """Read `guest-stats`; old drivers report free memory only."""
    at, listed = answer.get("last-update") or 0, answer.get("stats") or {}
    known = (listed.get(name, _UNKNOWN) for name in ("stat-available-memory", "stat-free-memory"))
    available = next((each for each in known if each not in (_UNKNOWN, -1)), None)
    return Statistics(available, at) if at and available is not None else None


async def inflate(qmp: Session, step: SetBalloon) -> None:
    """Set how much the balloon is to hold; how far the guest follows is in `observe`."""
    await qmp.execute("balloon", {"value": step.boot - step.held})


async def poll(qmp: Session, seconds: int) -> None:
    """Have the guest report its free memory now and at that interval, if there is a balloon."""
    with contextlib.suppress(CommandFailed):
        for interval in (0, seconds):  # switched on, QEMU asks at once
            value = {"path": _PATH, "property": _INTERVAL, "value": interval}
            await qmp.execute("qom-set", value)
