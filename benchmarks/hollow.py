"""`livevirt up` with hollow nodes: everything is real but QEMU, whose stand-in answers at once.

    python benchmarks/hollow.py '{"data_dir": "/tmp/h", "port": 0, "nodes": 4}'

No process and no cgroup is made for a guest. Images are looked up, intents are synced to the disk,
statuses are computed and written as ever. Only for benchmarks: nothing in livevirt knows of it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from livevirt import background, main
from livevirt.node import cgroups, guest_metrics, local, process, registration, volumes
from livevirt.node.guest import Guest
from livevirt.node.guest import guest as guest_module
from livevirt.node.guest.qmp_connection import QmpConnection
from livevirt.node.host import Host
from livevirt.node.process import Order, Process
from livevirt.qemu import balloon
from livevirt.qemu.accelerator import Accelerator
from livevirt.qemu.lifecycle import standing
from livevirt.qemu.machine import Machine
from livevirt.qemu.observe import PERIPHERALS, CpuSlot, Drive, MemoryState, Observed
from livevirt.qemu.plan import PlugCpu, RequestMemory, Step
from livevirt.qemu.usage import ProcessUsage, VcpuTime, process_usage

_HOST = Host(Accelerator("tcg", "a hollow node has none"), (7, 2, 0), None)
_pids = itertools.count(1 << 22)  # beyond what Linux gives out


class HollowConnection(QmpConnection):
    """The connection with a QEMU whose guest runs from the first moment and has no agent."""

    async def run(self) -> None:
        seen, view = observed(self._intent.machine), self._views.current
        self._views.show(replace(view, observed=seen, machine_type="pc-q35-7.2", standing=_RUNNING))

    async def refresh(self) -> None:
        """Find nothing new: what is shown is all there is."""


class HollowGuest(Guest):
    """A guest that takes what it is offered."""

    async def room(self) -> int:
        """Have room for all CPUs there may be."""
        return self.intent.machine.cpu.max_sockets

    def qmp(self) -> Any:
        """Return a session that answers what a scrape asks."""
        return HollowQmp(self.intent.machine)

    async def do(self, step: Step) -> None:
        """Have done it."""
        assert self.view.observed is not None
        self._views.show(replace(self.view, observed=after(step, self.view.observed)))


class HollowQmp:
    """Counts nothing on every disk, and knows their boot order."""

    def __init__(self, machine: Machine) -> None:
        self._answer = [{"qdev": disk.id, "stats": _NOTHING} for disk in machine.disks]
        self._boot = {f"{PERIPHERALS}/{disk.id}": disk.boot_index or -1 for disk in machine.disks}

    async def execute(self, command: str, arguments: Any = None) -> Any:
        """Answer `query-blockstats`, and `qom-get` of a boot index."""
        if command == "qom-get":
            return self._boot[arguments["path"]]
        return self._answer if command == "query-blockstats" else {}


_RUNNING = standing("running")
_NOTHING = {
    f"{what}_{count}": 0
    for what in ("rd", "wr", "flush")
    for count in ("operations", "bytes", "total_time_ns")
}


def observed(machine: Machine) -> Observed:
    """Return what QEMU would say of a machine that has just been started."""
    cpu, memory = machine.cpu, machine.memory
    return Observed(
        run_state="running",
        cpus=tuple(
            CpuSlot(thread, cpu.type, thread.socket < cpu.sockets, thread.id)
            for thread in cpu.threads_of(range(cpu.max_sockets))
        ),
        memory=MemoryState(memory.boot_size, headroom=memory.headroom),
        drives=tuple(Drive(disk.id, size=1 << 20) for disk in machine.disks),
        devices={balloon.DEVICE: balloon.DRIVER} if machine.balloon else {},
    )


def after(step: Step, seen: Observed) -> Observed:
    """Return what QEMU would say once the guest has followed a change of its size."""
    match step:
        case PlugCpu(_, thread):
            cpus = tuple(replace(c, present=True) if c.thread == thread else c for c in seen.cpus)
            return replace(seen, cpus=cpus, accepted=seen.accepted | {thread.id})
        case RequestMemory(size):
            return replace(seen, memory=replace(seen.memory, plugged=size, requested=size))
        case _:
            return seen


async def spawn(order: Order) -> Process:
    """Leave the trace of a QEMU that was started, and start none."""
    order.marker.touch(mode=0o600)
    return Process(next(_pids), 0)


def own_usage(_: int) -> ProcessUsage | None:
    """Measure this process in place of a QEMU, and one of its threads in place of a vCPU."""
    used = process_usage(os.getpid())
    assert used is not None
    return replace(used, vcpus={0: VcpuTime(used.user, used.system)})


async def exited(_: Process) -> None:
    """Wait for the end of a process that has none."""
    await asyncio.Event().wait()


async def qemu_img(*arguments: str) -> None:
    """Leave a file where qemu-img would have made an overlay."""
    os.close(os.open(arguments[-1], os.O_WRONLY | os.O_CREAT, 0o600))


async def look_at_host(_: Path) -> Host:
    """Return a machine that was not looked at."""
    return _HOST


def discover(node: str, cpu: int) -> cgroups.Cgroups:
    """Return the cgroups of a machine that has none."""
    return cgroups.Cgroups(node, (), cpu)


def hollow_out() -> None:
    """Put the stand-ins in place, and let a node hold any number of pods."""
    for owner, name, stand_in in (
        (process, "spawn", spawn),
        (process, "exited", exited),
        (guest_module, "QmpConnection", HollowConnection),
        (local, "Guest", HollowGuest),
        (volumes, "_qemu_img", qemu_img),
        (cgroups.Cgroups, "discover", discover),
        (guest_metrics, "process_usage", own_usage),
        (background, "look", look_at_host),
        (registration, "PODS", 1_000_000),
    ):
        getattr(owner, name)  # a stand-in for nothing would be none
        setattr(owner, name, stand_in)


if __name__ == "__main__":
    hollow_out()
    main.main()
