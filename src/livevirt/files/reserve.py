"""Space on the disk that only the control plane can use once everything else is full.

It is a preallocated file. Releasing it lets the database and a few small files be written, so that
guests can be stopped and volumes deleted although no byte is free.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from livevirt.files import disk_space, private

log = logging.getLogger(__name__)

SIZE = 16 * 2**20
_FULL = (errno.ENOSPC, errno.EDQUOT)
T = TypeVar("T")
_SPARE = 2  # times its size must be free, or holding the reserve would fill the disk itself


class Reserve:
    """The file, held or released."""

    def __init__(self, path: Path, size: int = SIZE) -> None:
        self._path, self._size = path, size

    def held(self) -> bool:
        """Return whether the space is kept."""
        try:
            return self._path.stat().st_size == self._size
        except OSError:
            return False

    def hold(self) -> bool:
        """Keep the space if there is enough left beside it; return whether it is kept."""
        if self.held():
            return True
        try:
            if disk_space.free(self._path.parent) < _SPARE * self._size:
                return False
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, private.FILE)
            try:
                os.posix_fallocate(handle, 0, self._size)
            finally:
                os.close(handle)
        except OSError as error:
            log.debug("reserve not held", extra={"error": str(error)})
            with contextlib.suppress(OSError):
                self._path.unlink()
            return False
        return True

    def release(self) -> bool:
        """Give the space back; return whether there was any."""
        try:
            self._path.unlink()
        except OSError:
            return False
        log.warning("disk is full, reserve released", extra={"reserve": self._path})
        return True

    def shortage(self) -> str:
        """Return why nothing new may be stored: the reserve is in use. Empty otherwise."""
        if self.held():
            return ""
        left = disk_space.free(self._path.parent)
        if left >= self._size:
            return ""
        return (
            f"the file system of {self._path.parent} has {left >> 20} MiB left, which are reserved"
            " for stopping and deleting; free some space, then try again"
        )

    def spend(self, work: Callable[[], T]) -> T:
        """Return what `work` does; if the disk is full, release the space and do it again."""
        try:
            return work()
        except OSError as error:
            if error.errno not in _FULL or not self.release():
                raise
            return work()
