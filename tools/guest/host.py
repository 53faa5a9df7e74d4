"""What the build asks of the machine it runs on: tools, one build at a time, a word on progress."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Host tool -> the Debian package that has it.
HOST_TOOLS = {
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "lz4": "lz4",
    "mcopy": "mtools",
    "mkfs.vfat": "dosfstools",
    "qemu-img": "qemu-utils",
    "syslinux": "syslinux",
}


def check_host_tools() -> None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    os.environ["PATH"] = path  # mkfs.vfat is there, and not on every user's PATH
    missing = sorted(package for tool, package in HOST_TOOLS.items() if not shutil.which(tool))
    if missing:
        sys.exit(f"guest: host tools are missing; run: apt-get install {' '.join(missing)}")


def run(*command: str, cwd: Path | None = None) -> str:
    """Run a host tool and return what it printed; its errors end the build."""
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"guest: {' '.join(command[:3])} failed: {result.stderr.strip()}")
    return result.stdout


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep a second build of the same output waiting."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def say(message: str) -> None:
    print(f"guest: {message}", flush=True)
