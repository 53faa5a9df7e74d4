"""What a guest shows of itself while it moves between QEMUs, timed outside.

A guest's own clock may stop with it, so it writes signs of life to its serial port and the logs
that QEMU keeps of the port are looked at, every few milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

SIGN = b"."
ALIVE = 50  # signs that show a guest to be well
LOOK = 0.002  # seconds between looks at the logs that are known
SEARCH = 10  # looks between searches for new ones; a guest takes far longer to come to one
SECONDS = 180.0  # for any one thing; an emulated CPU on a busy machine

# Nothing is forked: `read` waits on a pipe that stays empty, the rest is the shell's own.
TICKER = f"""
mkfifo /run/idle
exec 3<> /run/idle > /dev/ttyS0
while :; do
    echo -n {SIGN.decode()}
    read -t 0.005 _ <&3
done
"""


@dataclass(frozen=True, slots=True)
class Crossing:
    """When a guest last showed life at the source, and first at the target."""

    left: float
    arrived: float


@dataclass(frozen=True, slots=True)
class Moved:
    """What one move took, in seconds, and what the QEMU that was left said of it."""

    total: float
    downtime: float
    transferred: int | None  # bytes
    qemu_downtime_ms: int | None
    reached: dict[str, float] = field(default_factory=dict)  # what else, and when


class Serial:
    """What a guest writes to its serial port: a log for each QEMU it has been in."""

    _SIZE = re.compile(rb"size \S+ (\d+);")  # as the watcher of live.py writes it

    def __init__(self, folder: Path, pattern: str) -> None:
        self._folder, self._pattern = folder, pattern

    async def ticks(self) -> None:
        """Return once the guest shows life, as often as it should."""
        before: dict[Path, int] | None = None
        async for _, sizes in self._looks():
            if before is None:
                before = sizes
            for path, size in sizes.items():
                if size >= before.get(path, 0) + ALIVE and _end(path) == SIGN * ALIVE:
                    return

    async def crossing(self) -> Crossing:
        """Return when the guest, which shows life, went from one log to another."""
        source: dict[Path, int] | None = None
        left = 0.0
        async for now, sizes in self._looks():
            if source is None:
                source = {path: size for path, size in sizes.items() if size}
            for path, size in sizes.items():
                if path not in source and size:
                    return Crossing(left, now)
                if path in source and size > source[path]:
                    source[path], left = size, now
        raise AssertionError("nobody looks any more")

    async def memory(self, holds: Callable[[int], bool]) -> tuple[int, float]:
        """Return the first size from now on that is as wanted, in bytes, and when it was told."""
        read: dict[Path, int] | None = None
        async for now, sizes in self._looks():
            if read is None:
                read = dict(sizes)
            for path, size in sizes.items():
                begin = read.setdefault(path, 0)
                if size == begin:
                    continue
                told = path.read_bytes()[begin:]
                whole = told.rfind(b";") + 1
                read[path] = begin + whole
                for found in self._SIZE.findall(told[:whole]):
                    if holds(int(found) * 1024):
                        return int(found) * 1024, now
        raise AssertionError("nobody looks any more")

    async def _looks(self) -> AsyncIterator[tuple[float, dict[Path, int]]]:
        """Look again and again; yield when, and how long each log is. Raises TimeoutError."""
        ends = time.perf_counter() + SECONDS
        while time.perf_counter() < ends:
            logs = list(self._folder.glob(self._pattern))
            for _ in range(SEARCH):
                yield time.perf_counter(), _sizes(logs)
                await asyncio.sleep(LOOK)
        raise TimeoutError(f"nothing came in {SECONDS:.0f} s")


def _sizes(logs: list[Path]) -> dict[Path, int]:
    found = {}
    for path in logs:
        with contextlib.suppress(FileNotFoundError):  # of a QEMU that was left
            found[path] = path.stat().st_size
    return found


def _end(path: Path) -> bytes:
    with path.open("rb") as log:
        log.seek(-ALIVE, 2)
        return log.read()
