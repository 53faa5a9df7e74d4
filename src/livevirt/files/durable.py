"""Files that are whole or not there at all, also after a power failure."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Put the data in place at once; on return it is on the disk, and so is its name."""
    temporary = path.with_name(f".{path.name}.new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync(path.parent)


def sync(folder: Path) -> None:
    """Have the names in a directory survive a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
