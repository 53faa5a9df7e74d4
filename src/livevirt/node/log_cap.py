"""Keeps the logs of pods short: what a guest prints has no end, and the disk is everybody's.

QEMU writes its logs itself and only ever appends, so a log may be cut under its hands. Whoever
follows one finds it shorter than it was, and goes on at its end.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

log = logging.getLogger(__name__)

MOST_BYTES = 8 * 2**20
KEPT_BYTES = 4 * 2**20  # of one that was longer
LOOK_SECONDS = 10.0  # in which a guest at a serial port writes some MiB


async def keep_short(logs: Callable[[], Iterable[Path]]) -> None:
    """Cut these logs whenever they are too long, until cancelled."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        await asyncio.to_thread(_shorten_all, list(logs()))


def shorten(path: Path) -> None:
    """Cut a log that is too long down to its last lines."""
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(handle).st_size
        if size > MOST_BYTES:
            _move_tail(handle, size - KEPT_BYTES)
    finally:
        os.close(handle)


def _move_tail(handle: int, start: int) -> None:
    """Let a file begin with the first line after `start`. Who appends to it may go on."""
    kept = 0
    while part := os.pread(handle, KEPT_BYTES, start):  # also what comes while we are at it
        start += len(part)
        kept += os.pwrite(handle, part if kept else part[part.find(b"\n") + 1 :], kept)
    os.ftruncate(handle, kept)


def _shorten_all(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            shorten(path)
        except FileNotFoundError:
            continue  # not made yet, or its pod has gone
        except OSError as error:
            log.warning("log not cut", extra={"path": str(path), "error": str(error)})
