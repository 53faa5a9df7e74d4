"""Fills a volume: `disk.img` is there complete, or it is not there."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from livevirt.errors import LivevirtError, Terminal
from livevirt.files.durable import finished, sync
from livevirt.files.raw_file import DISK, write_problem


class ImportFailed(LivevirtError):
    """The import failed and is retried; the message names what to look at."""

    reason = "Error"


class ImageMissing(ImportFailed):
    """The image store has no image of that name."""

    reason = "ImagePullFailed"


class ImportRefused(Terminal):
    """What was offered can never become this disk."""


def of_system(error: OSError, where: str) -> ImportFailed:
    """Return what an error of the operating system means for an import."""
    return ImportFailed(write_problem(error, where))


_SCRATCH = ".import-"
_MIB = 2**20
_SECTOR = 512


def disk_size(room: int, virtual: int = 0) -> int:
    """Return how large a disk is made where there is `room`, at least the image's own size."""
    if virtual > room:
        raise ImportRefused(
            f"the image holds a disk of {virtual} bytes and the claim has room for {room}:"
            " a larger claim is needed"
        )
    return max(room - room % _MIB, virtual + -virtual % _SECTOR)


@contextlib.asynccontextmanager
async def scratch(directory: Path) -> AsyncIterator[Path]:
    """Give a place in the volume to work in; it is gone afterwards.

    One filler at a time, whatever process it is in. What a killed one left is removed first.
    """
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise of_system(error, str(directory)) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ImportFailed(f"{directory} is being filled by another process") from None
        await asyncio.to_thread(sweep, directory)
        try:
            yield Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=directory))
        except OSError as error:
            raise of_system(error, str(directory)) from error
        finally:
            sweep(directory)  # not awaited: it must happen when we are cancelled, too
    finally:
        os.close(handle)


def sweep(directory: Path) -> None:
    """Remove what fillers left in a volume."""
    for left in directory.glob(f"{_SCRATCH}*"):
        shutil.rmtree(left, ignore_errors=True)


async def publish(candidate: Path, directory: Path, size: int, *, preallocate: bool) -> None:
    """Make a finished file the volume's disk, durably; a disk that is there is never replaced."""
    await finished(_publish, candidate, directory, size, preallocate)


def _publish(candidate: Path, directory: Path, size: int, preallocate: bool) -> None:
    handle = os.open(candidate, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.fchmod(handle, 0o600)
        os.ftruncate(handle, size)
        if preallocate:
            os.posix_fallocate(handle, 0, size)
        os.fsync(handle)
    finally:
        os.close(handle)
    try:
        os.link(candidate, directory / DISK)  # unlike a rename it fails if the name is taken
    except FileExistsError:
        raise ImportRefused(f"{directory} has a disk already, which is left as it is") from None
    sync(directory)
