"""Which thread of QEMU serves which disk, by KubeVirt's policies. Pure.

Only virtio disks have threads. `shared`: one for all that ask for none of their own. `auto`: two
for each vCPU at most, or one if the emulator has a CPU of its own. `supplementalPool`: as many as
are asked for. A disk with `dedicatedIOThread` has one to itself, under any policy or none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import cycle
from zlib import crc32

from livevirt.kube.objects.request import Object
from livevirt.qemu.disk import Disk, own_thread
from livevirt.qemu.machine import Machine

SUPPLEMENTAL = "supplementalPool"
_POOL = "io"


def served(machine: Machine, domain: Object) -> Machine:
    """Return the machine with the threads a domain asks for; drives may have one already."""
    own = [disk.io_thread for disk in machine.disks if disk.io_thread is not None]
    others = [disk.id for disk in machine.disks if _shares(disk)]
    pool = [f"{_POOL}{n}" for n in range(_pool_size(machine, domain, len(own), len(others)))]
    threads = dict(zip(others, cycle(pool), strict=False)) if pool else {}
    return replace(
        machine,
        io_threads=(*pool, *own),
        disks=tuple(_served(disk, threads.get(disk.id)) for disk in machine.disks),
    )


def plugged(disks: Iterable[Disk], machine: Machine) -> tuple[Disk, ...]:
    """Return disks that come later, each with one of the threads that the machine shares out."""
    own = {disk.io_thread for disk in machine.disks if disk.io_thread == own_thread(disk.id)}
    pool = [id for id in machine.io_threads if id not in own]
    if not pool:
        return tuple(disks)
    # By its id and not by its place in the list, which changes as disks come and go.
    return tuple(_served(disk, pool[crc32(disk.id.encode()) % len(pool)]) for disk in disks)


def _served(disk: Disk, thread: str | None) -> Disk:
    return replace(disk, io_thread=thread) if _shares(disk) else disk


def _shares(disk: Disk) -> bool:
    return disk.bus == "virtio" and disk.io_thread is None


def supplemental(domain: Object) -> list[str]:
    """Return the ids of the threads that count as CPUs of the pod."""
    if domain.get("ioThreadsPolicy") != SUPPLEMENTAL:
        return []
    return [f"{_POOL}{n}" for n in range(_asked_for(domain))]


def _pool_size(machine: Machine, domain: Object, own: int, others: int) -> int:
    """Return how many threads the disks without one of their own have between them."""
    cpu = domain.get("cpu") or {}
    match domain.get("ioThreadsPolicy"):
        case "shared":
            return 1
        case "auto":
            isolated = cpu.get("dedicatedCpuPlacement") and cpu.get("isolateEmulatorThread")
            most = 1 if isolated else 2 * machine.cpu.sockets * machine.cpu.per_socket
            return max(1, min(others, most - own))
        case policy if policy == SUPPLEMENTAL:
            return _asked_for(domain)
    return 0


def _asked_for(domain: Object) -> int:
    return int((domain.get("ioThreads") or {}).get("supplementalPoolThreadCount") or 0)
