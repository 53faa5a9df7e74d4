"""Modes of files and directories: others may pass through a directory, and read nothing.

The process runs with `UMASK`; what must be more open than that gets its mode explicitly.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path

log = logging.getLogger(__name__)

UMASK = 0o077
FILE = 0o600
PASS_THROUGH = 0o711  # QEMU, as its own user, reaches its files and cannot list others'

_FILE_BITS = 0o077  # what group and others may not have on a file,
_FOLDER_BITS = 0o066  # and on a directory


def folder(path: Path, mode: int = PASS_THROUGH) -> None:
    """Create a directory of exactly this mode, whatever the umask; one that exists is kept."""
    try:
        path.mkdir()
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        path.chmod(mode)


def folders(path: Path, mode: int = PASS_THROUGH) -> None:
    """Create a directory with missing parents, all of this mode."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        folder(each, mode)


def restrict(roots: Iterable[Path]) -> int:
    """Take group and other permissions from everything at and below `roots`; return how many.

    Earlier releases created some files readable by everybody. Guests may write in some of the
    directories, so no link is followed.
    """
    changed = 0
    for root in roots:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            changed += _restrict_one(root.name, os.open(root.parent, os.O_RDONLY))
            for _, folders_, files, handle in os.fwalk(root, follow_symlinks=False):
                for name in (*folders_, *files):
                    changed += _restrict_one(name, os.dup(handle))
    if changed:
        log.info("permissions restricted", extra={"files": changed})
    return changed


def _restrict_one(name: str, folder: int) -> bool:
    """Restrict one name in an open directory, which is closed; return whether it had to be."""
    try:
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return False  # it has just been removed
    finally:
        os.close(folder)
    try:
        mode = os.fstat(handle).st_mode
        bits = _FOLDER_BITS if stat.S_ISDIR(mode) else _FILE_BITS
        if stat.S_ISLNK(mode) or not mode & bits:
            return False
        os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(mode) & ~bits)
        return True
    finally:
        os.close(handle)
