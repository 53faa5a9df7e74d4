"""How much of a file system is left, and how much of it guests have been promised.

Disks are sparse: a guest gets its space when it writes. So disks may promise more than there is,
up to `OVERCOMMIT` times the file system; when little is really left, the node is under pressure.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

OVERCOMMIT = 2.0
PRESSURE_SHARE, PRESSURE_BYTES = 0.1, 2**30  # pressure below a tenth free, or below this if less

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


def promised(folders: Iterable[Path]) -> int:
    """Return the bytes that the disks in the directories of `folders` may grow to."""
    return sum(size(disk) for folder in folders for disk in folder.glob("*/*"))


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
