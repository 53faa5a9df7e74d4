"""The disks that end with a guest: overlays of images, empty disks, discs made here.

They are the instance's and not a pod's, so that a guest that moves to another node of this machine
finds them there.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection
from pathlib import Path

_PASS_THROUGH = 0o711  # QEMU reaches its own files and cannot list others'


class Scratch:
    """The directories of all guests of one machine, by the uid of their instance."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, uid: str) -> Path:
        """Return the directory of one guest, which need not be there."""
        if not uid or "/" in uid or uid.startswith("."):
            raise ValueError(f"{uid!r} is not a uid")
        return self._root / uid

    def create(self, uid: str) -> Path:
        """Make the directory of one guest, if it is not there."""
        found = self.of(uid)
        for folder in (self._root, found):
            folder.mkdir(mode=_PASS_THROUGH, exist_ok=True)
        return found

    def remove(self, uid: str) -> None:
        """Remove what a guest wrote to disks that do not outlive it."""
        shutil.rmtree(self.of(uid), ignore_errors=True)

    def sweep(self, used: Collection[str]) -> None:
        """Remove the disks of guests that nobody intends to run: starts that came to nothing."""
        with contextlib.suppress(FileNotFoundError):
            for folder in self._root.iterdir():
                if folder.name not in used:
                    shutil.rmtree(folder, ignore_errors=True)
