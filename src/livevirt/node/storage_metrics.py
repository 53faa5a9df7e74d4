"""How full the directories are that guests and the server write to."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from livevirt.kube.control.metrics import Family, Sample, Source

CAPACITY = Family(
    "livevirt_storage_capacity_bytes", "gauge",
    "Size of the file system that holds a directory: data (objects, scratch disks), volumes"
    " (claims) or images.",
    ("directory",),
)  # fmt: skip
AVAILABLE = Family(
    "livevirt_storage_available_bytes", "gauge",
    "Free bytes of that file system, as far as an unprivileged user may have them.",
    ("directory",),
)  # fmt: skip
FAMILIES = (CAPACITY, AVAILABLE)


def source(directories: Mapping[str, Path]) -> Source:
    """Return a source of the usage of these directories, by name."""

    async def samples() -> list[Sample]:
        return await asyncio.to_thread(read, directories)

    return samples


def read(directories: Mapping[str, Path]) -> list[Sample]:
    """Return the figures of every directory that is there."""
    found = []
    for name, path in directories.items():
        with contextlib.suppress(OSError):
            seen = os.statvfs(path)
            found.append(Sample(CAPACITY, (name,), seen.f_blocks * seen.f_frsize))
            found.append(Sample(AVAILABLE, (name,), seen.f_bavail * seen.f_frsize))
    return found
