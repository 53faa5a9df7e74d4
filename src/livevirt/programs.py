"""QEMU's programs that livevirt runs, and what to install where one is missing."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from livevirt.errors import LivevirtError

#: Program → Debian's package of it, as tools/setup installs them.
PACKAGES = {"qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils"}


class ProgramMissing(LivevirtError):
    """QEMU is not installed, or not all of it."""


def check() -> None:
    """Refuse a machine where one of them is not on the PATH."""
    missing = [program for program in PACKAGES if shutil.which(program) is None]
    if missing:
        raise ProgramMissing(advice(*missing))


def advice(*programs: str) -> str:
    """Return the sentence on programs that are missing, and how to get them."""
    return (
        f"{_listed(programs)} not installed. As root on Debian or Ubuntu:"
        f" apt-get install --no-install-recommends {' '.join(PACKAGES[each] for each in programs)}"
    )


def _listed(programs: Sequence[str]) -> str:
    return f"{' and '.join(programs)} {'is' if len(programs) == 1 else 'are'}"
