"""Whether a QEMU could open an image beside those that have it open.

A QEMU locks single bytes of an image, which are of QEMU's own choice (`raw_apply_lock_bytes` in
block/file-posix.c): one tells that it writes, another that nobody else may.
"""

import fcntl
import os
import struct

from livevirt.qemu.disk import Disk

_WRITES, _ALONE = 101, 201
_FLOCK = "hhqqi4x"


def taken(disk: Disk) -> bool:
    """Tell whether another has the image of a disk in a way that does not go with this disk."""
    if disk.image is None:
        return False
    try:
        file = os.open(disk.image.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # which QEMU will tell
    try:
        return any(_locked(file, byte) for byte in _hindrances(disk))
    finally:
        os.close(file)


def _hindrances(disk: Disk) -> tuple[int, ...]:
    """Return the bytes that nobody may have locked."""
    if disk.readonly or disk.kind == "cdrom":
        return (_WRITES,)
    return (_ALONE,) if disk.shareable else (_WRITES, _ALONE)


def _locked(file: int, byte: int) -> bool:
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
