"""Work on files that a crash or a cancellation does not leave half done."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Put the data in place at once; on return it is on the disk, and so is its name."""
    temporary = path.with_name(f".{path.name}.new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync(path.parent)


def sync(folder: Path) -> None:
    """Have the names in a directory survive a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


async def finished(work: Callable[P, T], *args: P.args, **rest: P.kwargs) -> T:
    """Do blocking work in a thread; when cancelled, wait for its end all the same.

    A thread cannot be stopped: abandoned too early, it would write beside its successor.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work, *args, **rest))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio would log it
        raise
