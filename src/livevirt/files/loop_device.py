"""Block devices made of files, by Linux' loop driver.

A device is known by a node next to its file, never by its number, which may be another file's
tomorrow.
Once QEMU has it open it is released: it then goes by itself when QEMU does.
"""

import errno
import fcntl
import os
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_CONTROL = "/dev/loop-control"
# linux/loop.h
_GET_FREE, _CONFIGURE, _CLEAR = 0x4C82, 0x4C0A, 0x4C01
_SET_STATUS, _GET_STATUS, _SET_CAPACITY = 0x4C04, 0x4C05, 0x4C07
_AUTOCLEAR, _DIRECT_IO = 4, 16
_CONFIG = struct.Struct("=II40x12xI176x64x")  # of struct loop_config: fd, block_size, lo_flags
_STATUS = struct.Struct("=QQ36sI176s")  # of struct loop_info64: lo_device, lo_inode, …, lo_flags
_BLOCK_SIZE = 512
_NONE = (errno.ENOENT, errno.ENXIO)  # no node; a device of no file
_TRIES = 20  # others take devices too


@cache
def problem() -> str:
    """Return why no device can be made here; empty if one can. It is tried once."""
    try:
        with tempfile.TemporaryFile() as file:
            file.truncate(_BLOCK_SIZE)
            number = _configured(file.fileno())
            with _opened(_device(number)) as device:
                fcntl.ioctl(device, _CLEAR)
    except OSError as error:
        return f"no loop device can be made ({error.strerror}: {error.filename or _CONTROL})"
    return ""


def attach(file: Path) -> Path:
    """Return the node of a block device that is the file, as large as the file is by now."""
    node = _node(file)
    if not _kept(node, file):
        with _opened(file) as backing:
            number = _configured(backing)
        with _opened(_device(number)) as device:
            try:
                _make_node(node, os.fstat(device).st_rdev)
            except OSError:
                fcntl.ioctl(device, _CLEAR)
                raise
    with _opened(node) as device:
        fcntl.ioctl(device, _SET_CAPACITY)
    return node


def _kept(node: Path, file: Path) -> bool:
    """Let the device of a file stay that was to go with its last user; return whether there is."""
    try:
        with _opened(node) as device:
            found = _status(device, file)
            if found is None:
                return False
            number, inode, between, flags, rest = found
            if flags & _AUTOCLEAR:
                wanted = _STATUS.pack(number, inode, between, flags & ~_AUTOCLEAR, rest)
                fcntl.ioctl(device, _SET_STATUS, wanted)
    except OSError:  # it is going this moment
        return False
    return True


def release(file: Path) -> None:
    """Detach the device of a file as soon as no process has it open; do nothing without one."""
    try:
        with _opened(_node(file)) as device:
            if _status(device, file) is not None:
                fcntl.ioctl(device, _CLEAR)
    except OSError as error:
        if error.errno not in _NONE:
            raise


def _node(file: Path) -> Path:
    return file.with_suffix(".dev")


def _status(device: int, file: Path) -> tuple[int, int, bytes, int, bytes] | None:
    """Return what is known of a device, None if it is not this very file."""
    if not stat.S_ISBLK(os.fstat(device).st_mode):
        return None
    try:
        answer = fcntl.ioctl(device, _GET_STATUS, bytes(_STATUS.size))
    except OSError as error:
        if error.errno not in _NONE:
            raise
        return None
    number, inode, between, flags, rest = _STATUS.unpack(answer)
    there = file.stat(follow_symlinks=False)
    if (number, inode) != (there.st_dev, there.st_ino):
        return None
    return number, inode, between, flags, rest


def _device(number: int) -> Path:
    return Path(f"/dev/loop{number}")


def _configured(backing: int) -> int:
    """Make a device of an open file; return its number."""
    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_TRIES):
            number = fcntl.ioctl(control, _GET_FREE)
            with _opened(_device(number)) as device:
                try:
                    fcntl.ioctl(device, _CONFIGURE, _CONFIG.pack(backing, _BLOCK_SIZE, _DIRECT_IO))
                except OSError as error:
                    if error.errno != errno.EBUSY:
                        raise
                    continue
                return number
    finally:
        os.close(control)
    raise OSError(errno.EBUSY, "no loop device is free")


def _make_node(node: Path, device: int) -> None:
    """Make a node of a device, in place of an old one."""
    fresh = node.with_name(f"{node.name}.new")
    fresh.unlink(missing_ok=True)
    os.mknod(fresh, stat.S_IFBLK | 0o600, device)
    fresh.rename(node)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)
