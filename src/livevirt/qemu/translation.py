"""TCG's cache of translated code, which must not be full when a CPU is plugged.

The cache is cut into regions and each CPU's thread takes one at a time. QEMU 7.2 aborts if a new
CPU finds none left. A full cache is emptied as soon as a running CPU asks for more, so the wait is
short for a busy guest; an idle one must be given something to do.
"""

from __future__ import annotations

import re

from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.session import Session

_MIB = 1024 * 1024
_LEAST_REGION = 2 * _MIB
_REGIONS_PER_CPU = 8
_SPARE = 2  # regions that may be taken between looking and plugging
_USED = re.compile(r"gen code size\s+(\d+)/(\d+)")


async def has_room(qmp: Session) -> bool:
    """Tell whether a CPU can be plugged now; with KVM it always can."""
    try:
        told = await qmp.execute("x-query-jit")
    except CommandFailed:
        return True  # nothing is translated
    slots = await qmp.execute("query-hotpluggable-cpus")
    present = sum("qom-path" in slot for slot in slots)
    return room(told["human-readable-text"], len(slots), present)


def room(told: str, cpus: int, present: int) -> bool:
    """Read `x-query-jit` of a machine for that many CPUs: whether a region is left for one more."""
    found = _USED.search(told)
    if found is None:
        return True  # a QEMU that words it otherwise
    used, size = map(int, found.groups())
    regions = min(size // _LEAST_REGION, cpus * _REGIONS_PER_CPU)
    held = present + _SPARE  # at worst each CPU has just begun one
    return used < size * max(regions - held, regions // 2) // max(regions, 1)
