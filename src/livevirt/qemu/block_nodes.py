"""Block nodes: the images a QEMU has open, and whether it could open one that others have open.

Each node is named after the disk and the image. A QEMU locks single bytes of an image, which
are of QEMU's own choice (`raw_apply_lock_bytes` in block/file-posix.c): one means that it writes,
another that no other may.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from livevirt.qemu import disk
from livevirt.qemu.disk import Disk
from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.session import Session


async def add_node(qmp: Session, drive: Disk) -> None:
    """Let QEMU open the image of a disk, unless it has."""
    # QEMU may have no right to open the files by itself, so they are opened here.
    sets: dict[str, int] = {}
    try:
        for image, writable in disk.layers(drive):
            with _opened(image.path, writable=writable) as fd:
                sets[image.path] = await qmp.send_file(fd)
        paths = {path: f"/dev/fdset/{number}" for path, number in sets.items()}
        await qmp.execute("blockdev-add", disk.blockdev(drive, paths))
    except CommandFailed:
        if not await has_node(qmp, drive.node):
            raise
    finally:
        for number in sets.values():
            await qmp.execute("remove-fd", {"fdset-id": number})  # the node has its own copy


async def forget_node(qmp: Session, node: str | None) -> None:
    """Let QEMU close an image, unless it has."""
    if node is None:
        return
    try:
        await qmp.execute("blockdev-del", {"node-name": node})
    except CommandFailed:
        if await has_node(qmp, node):
            raise


async def has_node(qmp: Session, node: str | None) -> bool:
    """Return whether QEMU has an image open."""
    nodes = await qmp.execute("query-named-block-nodes", {"flat": True})
    return any(entry["node-name"] == node for entry in nodes)


@contextmanager
def _opened(path: str, *, writable: bool) -> Iterator[int]:
    try:
        fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    except OSError as error:
        raise CommandFailed("GenericError", f"Could not open '{path}': {error.strerror}") from error
    try:
        yield fd
    finally:
        os.close(fd)


# ---------------------------------------------------------------- locks of images

_WRITES, _ALONE = 101, 201
_FLOCK = "hhqqi4x"


def image_taken(disk: Disk) -> bool:
    """Return whether another has the image of a disk in a way that does not go with this disk."""
    if disk.image is None:
        return False
    try:
        file = os.open(disk.image.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # which QEMU will report
    try:
        return any(_locked(file, byte) for byte in _hindrances(disk))
    finally:
        os.close(file)


def _hindrances(disk: Disk) -> tuple[int, ...]:
    """Return the bytes that no process may have locked."""
    if disk.readonly or disk.kind == "cdrom":
        return (_WRITES,)
    return (_ALONE,) if disk.shareable else (_WRITES, _ALONE)


def _locked(file: int, byte: int) -> bool:
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
