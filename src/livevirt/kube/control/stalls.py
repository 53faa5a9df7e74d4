"""Notices when the event loop was blocked: no client is answered meanwhile."""

from __future__ import annotations

import asyncio
import logging

from livevirt.kube.control.metrics import Family, Sample

log = logging.getLogger(__name__)

EVERY = 0.1  # seconds between two looks
STALL = 0.1  # seconds late that count as a stall
QUIET = 10.0  # seconds between two lines in the log

STALLS = Family(
    "livevirt_event_loop_stalls_total", "counter",
    "How often the event loop was blocked for more than 100 ms.",
)  # fmt: skip
LONGEST = Family(
    "livevirt_event_loop_longest_stall_seconds", "gauge",
    "The longest time that the event loop was blocked since the start.",
)  # fmt: skip
FAMILIES = (STALLS, LONGEST)


class StallMonitor:
    """Sleeps for a moment, repeatedly, and counts how often it oversleeps."""

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0.0
        self._logged = -QUIET

    async def run(self) -> None:
        """Watch the loop until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + EVERY
            await asyncio.sleep(EVERY)
            self.observe(clock() - due, due)

    def observe(self, late: float, now: float) -> None:
        """Count one sleep that ended so many seconds late."""
        if late < STALL:
            return
        self.count += 1
        self.longest = max(self.longest, late)
        if now - self._logged >= QUIET:
            self._logged = now
            log.warning("event loop was blocked", extra={"seconds": round(late, 3)})

    async def samples(self) -> list[Sample]:
        """Return the number of stalls and the longest."""
        return [Sample(STALLS, (), self.count), Sample(LONGEST, (), self.longest)]
