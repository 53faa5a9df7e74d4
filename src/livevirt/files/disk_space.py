"""How much of a file system is left, and how much of it guests have been promised.

Disks are sparse: a guest gets its space when it writes. So disks may promise more than there is,
up to `OVERCOMMIT` times the file system; when little is really left, the node is under pressure.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

OVERCOMMIT = 2.0
PRESSURE_SHARE, PRESSURE_BYTES = 0.1, 2**30  # pressure below a tenth free, or below this if less
_COUNT_EVERY = 60.0  # seconds

_QCOW2 = b"QFI\xfb"


def free(folder: Path) -> int:
    """Return the bytes that can still be written to a folder's file system."""
    seen = os.statvfs(folder)
    # Root may use the blocks that are kept from others, and so may we if we are root.
    blocks = seen.f_bfree if os.geteuid() == 0 else seen.f_bavail
    return blocks * seen.f_frsize


def total(folder: Path) -> int:
    """Return the size of a folder's file system."""
    seen = os.statvfs(folder)
    return seen.f_blocks * seen.f_frsize


def pressure(folder: Path) -> str:
    """Return why a file system needs space urgently; empty if it does not."""
    left, threshold = free(folder), min(total(folder) * PRESSURE_SHARE, PRESSURE_BYTES)
    if left >= threshold:
        return ""
    return (
        f"{left >> 20} MiB are free on the file system of {folder}, less than"
        f" {int(threshold) >> 20} MiB: free some space"
    )


class Promises:
    """What the disks in the directories of some folders may grow to.

    Disks are counted at most once a minute, because each start of a guest adds some; those admitted
    in between are remembered. A disk is refused only after a new count.
    """

    def __init__(self, folders: Iterable[Path], clock: Callable[[], float] = time.monotonic):
        self._folders, self._clock = tuple(folders), clock
        self._lock = threading.Lock()
        self._counted: dict[Path, int] = {}
        self._total, self._when = 0, -math.inf

    def admit(self, disk: Path, wanted: int) -> str:
        """Remember a disk of `wanted` bytes; return why there is no space for it, "" if there is.

        A disk of the same name is replaced: an earlier attempt may have left it.
        """
        with self._lock:
            fresh = self._clock() - self._when >= _COUNT_EVERY
            if fresh:
                self._count()
            why = self._refusal(disk, wanted)
            if why and not fresh:
                self._count()
                why = self._refusal(disk, wanted)
            if not why:
                self._total += wanted - self._counted.get(disk, 0)
                self._counted[disk] = wanted
            return why

    def _count(self) -> None:
        found = (disk for folder in self._folders for disk in folder.glob("*/*"))
        self._counted = {disk: size(disk) for disk in found}
        self._total, self._when = sum(self._counted.values()), self._clock()

    def _refusal(self, disk: Path, wanted: int) -> str:
        return refusal(disk.parent, self._total - self._counted.get(disk, 0), wanted)


def refusal(folder: Path, already: int, wanted: int) -> str:
    """Return why a disk of `wanted` bytes may not be added to those of `already`, "" if it may."""
    limit = int(total(folder) * OVERCOMMIT)
    if already + wanted <= limit:
        return ""
    return (
        f"a disk of {wanted >> 20} MiB does not fit: disks below {folder} may grow to"
        f" {already >> 20} MiB already, and {limit >> 20} MiB is the limit"
        f" ({OVERCOMMIT:g} times the file system)"
    )


def size(disk: Path) -> int:
    """Return the size of a disk that a guest sees; 0 if there is none."""
    with contextlib.suppress(OSError):
        handle = os.open(disk, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            seen = os.fstat(handle)
            if not stat.S_ISREG(seen.st_mode):
                return 0
            head = os.pread(handle, 32, 0)
            if head.startswith(_QCOW2) and len(head) == 32:
                return int(struct.unpack_from(">Q", head, 24)[0])
            return seen.st_size
        finally:
            os.close(handle)
    return 0
