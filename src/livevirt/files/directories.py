"""The directories volumes are kept in; all paths are made here, from names alone."""

from __future__ import annotations

import contextlib
import errno
import shutil
from dataclasses import dataclass
from pathlib import Path

from livevirt.files import loop_device, raw_file
from livevirt.files.durable import sync

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
        return raw_file.size(self.disk(volume))

    def grow(self, volume: str, size: int) -> None:
        """Make a volume's disk larger, durably, whoever has it open."""
        raw_file.grow(self.disk(volume), size)

    def make(self, volume: str) -> None:
        """Make a volume's directory, durably."""
        # QEMU, as its own user, must be able to pass through; what is inside has its own owner.
        self.root.mkdir(mode=0o711, parents=True, exist_ok=True)
        self.of(volume).mkdir(mode=0o711, exist_ok=True)
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
