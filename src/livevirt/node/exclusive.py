"""Dedicated CPUs: which pod has which, and which thread of QEMU runs on each."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from livevirt.errors import LivevirtError
from livevirt.kube.objects.request import Object
from livevirt.node import domain as node_domain
from livevirt.node.cgroups import cpu_list
from livevirt.node.intent import Exclusive
from livevirt.node.process import Process
from livevirt.qemu.machine import Cpu, Thread
from livevirt.qemu.observe import Threads, threads
from livevirt.qemu.session import Session

log = logging.getLogger(__name__)

_SYSTEM = Path("/sys/devices/system")


class NoCpus(LivevirtError):
    """There are not as many CPUs left as a pod is to have for itself."""


@dataclass(frozen=True, slots=True, order=True)
class HostCpu:
    """One CPU of the machine; sorts so that CPUs which belong together are neighbours."""

    cell: int  # the NUMA node it is in
    core: int  # the lowest number among the CPUs that are threads of the same core
    number: int


class Group(Protocol):
    """A pod's cgroup, as far as CPUs go."""

    @property
    def has_cpuset(self) -> bool:
        """Whether its processes can be kept to some CPUs."""

    def set_cpus(self, cpus: Sequence[int]) -> None:
        """Keep its processes to these CPUs; raises OSError if the kernel refuses."""


# ---------------------------------------------------------------- pure


def pool(cpus: Iterable[HostCpu]) -> list[HostCpu]:
    """Return the CPUs that may be given away: all but the first."""
    return sorted(sorted(cpus, key=lambda cpu: cpu.number)[1:])


def choose(free: Sequence[HostCpu], count: int) -> tuple[int, ...]:
    """Return the numbers of so many CPUs, of one NUMA node if one has them; raises NoCpus."""
    if count > len(free):
        raise NoCpus(f"not enough CPUs for its own: {count} wanted, {len(free)} left")
    cells: dict[int, list[HostCpu]] = {}
    for cpu in sorted(free):
        cells.setdefault(cpu.cell, []).append(cpu)
    # The fullest that will do, so that large pods find an empty one; else as few as possible.
    by_room = sorted(cells.values(), key=len)
    enough = next((cell for cell in by_room if len(cell) >= count), None)
    order = enough or [cpu for cell in reversed(by_room) for cpu in cell]
    return tuple(cpu.number for cpu in order[:count])


@dataclass(frozen=True, slots=True)
class Asked:
    """The threads of a guest that get a dedicated CPU."""

    vcpus: int
    io_threads: tuple[str, ...] = ()
    isolated: bool = False  # the emulator too

    @property
    def count(self) -> int:
        return self.vcpus + len(self.io_threads) + self.isolated


def asked(vmi: Object) -> Asked | None:
    """Return what an instance wants pinned, as it boots; None if it shares its CPUs."""
    domain = vmi["spec"].get("domain") or {}
    cpu = domain.get("cpu") or {}
    if not cpu.get("dedicatedCpuPlacement"):
        return None
    booted = cpu | ((vmi.get("status") or {}).get("currentCPUTopology") or {})
    vcpus = 1
    for name in ("sockets", "cores", "threads"):
        vcpus *= booted.get(name) or 1
    threads = tuple(node_domain.supplemental(domain))
    return Asked(vcpus, threads, bool(cpu.get("isolateEmulatorThread")))


def deal(cpus: Sequence[int], wanted: Asked | None) -> Exclusive:
    """Return what runs on which of a pod's CPUs; raises NoCpus if they are too few.

    Each vCPU has one, then each IO thread; the emulator has the last if it is to be isolated, and
    else runs on all of them. What the pod has beyond that is for the vCPUs that come later.
    """
    if wanted is None:
        return Exclusive(cpus=tuple(cpus))
    if len(cpus) < wanted.count:
        raise NoCpus(f"the guest needs {wanted.count} dedicated CPUs and its pod has {len(cpus)}")
    vcpus = wanted.vcpus + len(cpus) - wanted.count
    rest = tuple(cpus[vcpus:])
    return Exclusive(
        cpus=tuple(cpus),
        vcpus=tuple(cpus[:vcpus]),
        io_threads=dict(zip(wanted.io_threads, rest, strict=False)),
        emulator=rest[len(wanted.io_threads) :] if wanted.isolated else tuple(cpus),
    )


# ---------------------------------------------------------------- files


def layout(numbers: Iterable[int], system: Path = _SYSTEM) -> list[HostCpu]:
    """Return where these CPUs are; a kernel that does not report it has one NUMA node."""
    cells: dict[int, int] = {}
    for folder in system.glob("node/node[0-9]*"):
        with contextlib.suppress(OSError):
            cpus = cpu_list((folder / "cpulist").read_text())
            cells |= dict.fromkeys(cpus, int(folder.name.removeprefix("node")))
    return [HostCpu(cells.get(n, 0), _core(n, system), n) for n in numbers]


def _core(number: int, system: Path) -> int:
    siblings = system / f"cpu/cpu{number}/topology/thread_siblings_list"
    with contextlib.suppress(OSError):
        return min(cpu_list(siblings.read_text()), default=number)
    return number


class Cpus:
    """The CPUs of one machine, and the pods of all its nodes that run on them.

    In force at any moment: a pod's own CPUs are in no other pod's cpuset.
    """

    def __init__(self, cpus: Iterable[HostCpu]) -> None:
        self._cpus = {cpu.number: cpu for cpu in cpus}
        self._own: dict[str, tuple[int, ...]] = {}  # by the pod's uid
        self._groups: dict[str, Group] = {}  # of pods that run or are about to

    @classmethod
    def of_this_machine(cls) -> Cpus:
        """Return the CPUs that this process may use."""
        return cls(layout(os.sched_getaffinity(0)))

    @property
    def shared(self) -> tuple[int, ...]:
        """The shared CPUs; never none."""
        taken = {number for own in self._own.values() for number in own}
        return tuple(sorted(self._cpus.keys() - taken))

    def cell(self, number: int) -> int:
        """Return the NUMA node of a CPU."""
        return self._cpus[number].cell if number in self._cpus else 0

    def take(self, uid: str, count: int) -> tuple[int, ...]:
        """Give a pod so many CPUs, the same if it has some; raises NoCpus."""
        if uid not in self._own:
            shared = set(self.shared)
            free = [cpu for cpu in pool(self._cpus.values()) if cpu.number in shared]
            self._own[uid] = choose(free, count)
        return self._own[uid]

    def adopt(self, uid: str, own: Sequence[int], group: Group) -> None:
        """Register a pod that an earlier run has started, or was about to."""
        if own:
            self._own[uid] = tuple(own)
        self._groups[uid] = group

    def confine(self, uid: str, group: Group) -> None:
        """Keep a pod to its own CPUs and all others off them, or to those that are shared.

        Raises OSError if the kernel refuses: then the pod must not run.
        """
        self._groups[uid] = group
        if uid in self._own:
            self._set_shared()  # first the others off, then this one on
            group.set_cpus(self._own[uid])
        elif group.has_cpuset or self._own:
            group.set_cpus(self.shared)

    def release(self, uid: str) -> None:
        """Free what a pod had, now that none of its processes is left."""
        self._groups.pop(uid, None)
        if self._own.pop(uid, None) is None:
            return
        try:
            self._set_shared()
        except OSError as error:  # they run on fewer CPUs than they might: slower, never wrong
            log.warning("shared CPUs not given back", extra={"error": str(error)})

    def _set_shared(self) -> None:
        for uid, group in self._groups.items():
            if uid not in self._own:
                with contextlib.suppress(FileNotFoundError):  # it has ended, or not begun
                    group.set_cpus(self.shared)


_PROC = Path("/proc")


def places(
    threads: Threads, exclusive: Exclusive, cpu: Cpu, tids: Iterable[int]
) -> dict[int, frozenset[int]]:
    """Return the CPUs that each thread of a process may run on. Pure."""
    order = {thread: n for n, thread in enumerate(cpu.threads_of(range(cpu.max_sockets)))}
    own = _own(threads.vcpus, order, exclusive) | {
        tid: frozenset({exclusive.io_threads[id]})
        for tid, id in threads.io_threads.items()
        if id in exclusive.io_threads
    }
    elsewhere = frozenset(exclusive.emulator)
    return {tid: own.get(tid, elsewhere) for tid in tids}


def _own(
    vcpus: Mapping[int, Thread], order: Mapping[Thread, int], exclusive: Exclusive
) -> dict[int, frozenset[int]]:
    found = {}
    for tid, thread in vcpus.items():
        number = order.get(thread)
        if number is not None and number < len(exclusive.vcpus):
            found[tid] = frozenset({exclusive.vcpus[number]})
    return found


async def pin(qmp: Session, process: Process, exclusive: Exclusive, cpu: Cpu) -> None:
    """Pin every thread; raises OSError if the kernel refuses."""
    if not exclusive.vcpus:
        return
    named = await threads(qmp)
    pinned: set[int] = set()
    # A thread is born where the one that makes it may run, so a look without news ends this.
    while new := _tids(process) - pinned:
        for tid, cpus in places(named, exclusive, cpu, new).items():
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.sched_setaffinity(tid, cpus)
        pinned |= new


def _tids(process: Process) -> set[int]:
    """Return the threads of the process; only these are touched, whatever QEMU reports."""
    try:
        return {int(entry) for entry in os.listdir(_PROC / str(process.pid) / "task")}
    except FileNotFoundError:
        return set()
