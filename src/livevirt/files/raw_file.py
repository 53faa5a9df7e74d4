"""Raw disk images in files, one directory per volume. No link is ever followed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from livevirt.files import loop_device, private
from livevirt.files.durable import sync

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


DISK = "disk.img"
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Directories:
    """One directory per volume below a root. A path in a manifest is never followed."""

    root: Path

    def of(self, volume: str) -> Path:
        """Return a volume's directory."""
        return self.root / volume

    def disk(self, volume: str) -> Path:
        """Return the file that is a volume's disk."""
        return self.of(volume) / DISK

    def exists(self, volume: str) -> bool:
        """Return whether a volume has its directory."""
        return self.of(volume).is_dir()

    def size(self, volume: str) -> int | None:
        """Return how large a volume's disk is, None if it has none yet."""
        return size(self.disk(volume))

    def grow(self, volume: str, size: int) -> None:
        """Make a volume's disk larger, durably, also while it is open."""
        grow(self.disk(volume), size)

    def make(self, volume: str) -> None:
        """Make a volume's directory, durably."""
        # QEMU, as its own user, must be able to pass through; what is inside has its own owner.
        private.folders(self.root)
        private.folder(self.of(volume))
        sync(self.root)

    def remove(self, volume: str) -> None:
        """Remove a volume's directory and all in it; nothing happens if it is gone."""
        if self.exists(volume):
            with contextlib.suppress(FileNotFoundError):
                loop_device.release(self.disk(volume))  # or the file would live on in its device
            shutil.rmtree(self.of(volume))
            sync(self.root)


def write_problem(error: OSError, where: str) -> str:
    """Return why something could not be written, and what to do about it."""
    if error.errno in _FULL:
        return f"no space left below {where}: free some, or remove volumes that are not needed"
    return f"cannot write below {where}: {error.strerror or error}"
