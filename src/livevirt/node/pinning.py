"""Puts each thread of a QEMU that has CPUs of its own on the one it is meant for.

The cpuset of the pod keeps QEMU to its CPUs from its first moment on; this settles which thread
has which of them. QEMU names the threads of the vCPUs, the kernel lists them all.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from livevirt.node.intent import Exclusive
from livevirt.node.process import Process
from livevirt.qemu.machine import Cpu, Thread
from livevirt.qemu.observe import Threads, threads
from livevirt.qemu.session import Session

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
    """Return the threads of the process; only these are touched, whatever QEMU says."""
    try:
        return {int(entry) for entry in os.listdir(_PROC / str(process.pid) / "task")}
    except FileNotFoundError:
        return set()
