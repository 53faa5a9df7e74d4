"""Raw disk images in files: sparse when made, and later only larger. No link is ever followed."""

import fcntl
import os
import stat
from pathlib import Path

MIB = 2**20


def whole(size: int) -> int:
    """Return how large the disk is where there are so many bytes of room: in whole MiB."""
    return size // MIB * MIB


def create(path: Path, size: int) -> None:
    """Make an empty image; what was there is lost."""
    _create(path, size, os.O_TRUNC)


def ensure(path: Path, size: int) -> None:
    """Let there be an image of at least that size; raises OSError if it is not a regular file."""
    try:
        grow(path, size)
    except FileNotFoundError:
        try:
            _create(path, size, os.O_EXCL)
        except FileExistsError:  # another was faster, and may have written to it
            grow(path, size)


def grow(path: Path, size: int) -> None:
    """Make an image larger, on the disk when this returns; a larger one stays as it is.

    QEMU may have it open: it learns of the new size by `block_resize` alone.
    """
    handle = _open(path, os.O_RDWR)
    try:
        # Two who grow it at once must not undo each other. QEMU's own locks are of another kind.
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_size < size:
            os.ftruncate(handle, size)
            os.fsync(handle)
    finally:
        os.close(handle)


def _create(path: Path, size: int, how: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags | how, 0o600)
    try:
        os.ftruncate(handle, size)
    finally:
        os.close(handle)


def size(path: Path) -> int | None:
    """Return how large an image is, None if there is none."""
    try:
        handle = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


def _open(path: Path, access: int) -> int:
    handle = os.open(path, access | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{path.name} is not a regular file")
    return handle
