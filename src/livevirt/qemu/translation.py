"""TCG's cache of translated code, which must not be full when a CPU is plugged.

The cache is cut into regions and each CPU's thread takes one at a time. QEMU 7.2 aborts if a new
CPU finds none left. A full cache is emptied as soon as a running CPU asks for more, so the wait is
short for a busy guest; an idle one must be given something to do.
"""

from __future__ import annotations

import asyncio
import re

from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.session import Session

_MIB = 1024 * 1024
_LEAST_REGION = 2 * _MIB
_REGIONS_PER_CPU = 8
_SPARE = 2  # regions that may be taken between looking and plugging
_USED = re.compile(r"gen code size\s+(\d+)/(\d+)")


async def room(qmp: Session) -> int:
    """Return how many CPUs can be plugged at this moment; with KVM any that are missing."""
    # Both at once: the first walks over all translated code, which takes a while.
    told, slots = await asyncio.gather(_told(qmp), qmp.execute("query-hotpluggable-cpus"))
    return fitting(told, len(slots), sum("qom-path" in slot for slot in slots))


async def _told(qmp: Session) -> str:
    try:
        found: str = (await qmp.execute("x-query-jit"))["human-readable-text"]
    except CommandFailed:
        return ""  # nothing is translated
    return found


def fitting(told: str, cpus: int, present: int) -> int:
    """Read `x-query-jit` of a machine for that many CPUs: for how many more a region is left."""
    missing = cpus - present
    found = _USED.search(told)
    if found is None:
        return missing  # nothing is translated, or QEMU words it otherwise
    used, size = map(int, found.groups())
    regions = max(min(size // _LEAST_REGION, cpus * _REGIONS_PER_CPU), 1)

    def fits(more: int) -> bool:
        held = present + more - 1 + _SPARE  # at worst each CPU has just begun one
        return used < size * max(regions - held, regions // 2) // regions

    return next((more - 1 for more in range(1, missing + 1) if not fits(more)), missing)
