"""What a QEMU process uses: CPU time by thread, memory, and requests to its disks.

CPU time and memory are the kernel's figures, read from `/proc` without asking QEMU, so a QEMU that
hangs is measured too. The parts that interpret answers are pure.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from livevirt.qemu.observe import PERIPHERALS

_PROC = Path("/proc")
_TICK = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_NANO = 1e-9
_USER, _SYSTEM = 11, 12  # fields of /proc/<pid>/stat after the name; proc(5) counts from 3
_VCPU = re.compile(r"CPU (\d+)/")  # how QEMU names the threads of vCPUs, by `debug-threads`


@dataclass(frozen=True, slots=True)
class VcpuTime:
    """Seconds a vCPU's thread ran, and waited for a CPU of the host (None: not counted)."""

    ran: float
    delayed: float | None = None


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What a QEMU process has used: seconds of CPU time since it started, bytes of memory."""

    user: float
    system: float
    resident: int
    vcpus: Mapping[int, VcpuTime] = field(default_factory=dict)

    @property
    def cpu(self) -> float:
        """Seconds of CPU time in all."""
        return self.user + self.system


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Requests of the guest to one disk since QEMU started; times are in seconds."""

    reads: int
    writes: int
    flushes: int
    read_bytes: int
    written_bytes: int
    read_time: float
    write_time: float
    flush_time: float


def process_usage(pid: int, *, vcpus: bool = True) -> ProcessUsage | None:
    """Return what a process uses by now, None if it is gone. Reads `/proc`, which never waits."""
    folder = _PROC / str(pid)
    try:
        user, system = cpu_times((folder / "stat").read_bytes())
        resident = int((folder / "statm").read_bytes().split()[1]) * _PAGE
        threads = _vcpus(folder / "task") if vcpus else {}
    except (OSError, IndexError):
        return None
    return ProcessUsage(user, system, resident, threads)


def _vcpus(tasks: Path) -> dict[int, VcpuTime]:
    found = {}
    for task in os.listdir(tasks):
        with contextlib.suppress(OSError):  # threads start and end
            named = _VCPU.match((tasks / task / "comm").read_text())
            if named:
                found[int(named[1])] = _thread(tasks / task)
    return dict(sorted(found.items()))


def _thread(task: Path) -> VcpuTime:
    with contextlib.suppress(OSError):  # kernels may be built without it
        ran, delayed, _ = (task / "schedstat").read_bytes().split()
        return VcpuTime(int(ran) * _NANO, int(delayed) * _NANO)
    return VcpuTime(sum(cpu_times((task / "stat").read_bytes())))


def cpu_times(stat: bytes) -> tuple[float, float]:
    """Read `/proc/<pid>/stat`: seconds in user and in system mode."""
    fields = stat.rpartition(b")")[2].split()  # the name before may hold anything
    return int(fields[_USER]) * _TICK, int(fields[_SYSTEM]) * _TICK


def disk_usage(answer: Sequence[Mapping[str, Any]]) -> dict[str, DiskUsage]:
    """Read `query-blockstats`: by the id of the drive; drives without an id are not ours."""
    found = {}
    for entry in answer:
        id, stats = _drive(entry.get("qdev", "")), entry["stats"]
        if id:
            found[id] = DiskUsage(
                reads=stats["rd_operations"],
                writes=stats["wr_operations"],
                flushes=stats["flush_operations"],
                read_bytes=stats["rd_bytes"],
                written_bytes=stats["wr_bytes"],
                read_time=stats["rd_total_time_ns"] * _NANO,
                write_time=stats["wr_total_time_ns"] * _NANO,
                flush_time=stats["flush_total_time_ns"] * _NANO,
            )
    return found


def _drive(path: str) -> str:
    """Return the id in a QOM path: of a virtio-blk disk the path goes on to its inner device."""
    return path.removeprefix(f"{PERIPHERALS}/").split("/")[0]


@dataclass(frozen=True, slots=True)
class TransferRates:
    """A guest on its way to another QEMU: bytes, and bytes per second."""

    total: int
    remaining: int
    processed: int
    memory_rate: float
    dirty_rate: float


def transfer_rates(answer: Mapping[str, Any]) -> TransferRates | None:
    """Read `query-migrate`; None while no guest is sent."""
    ram = answer.get("ram")
    if not ram or answer.get("status") != "active":
        return None
    return TransferRates(
        total=ram["total"],
        remaining=ram["remaining"],
        processed=ram["transferred"],
        memory_rate=ram["mbps"] * 1e6 / 8,
        dirty_rate=ram["dirty-pages-rate"] * ram["page-size"],
    )


def meminfo(text: str) -> dict[str, int]:
    """Read a guest's `/proc/meminfo`: bytes by name; lines that say anything else are left out."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        parts = rest.split()
        if len(parts) == 2 and parts[0].isdecimal() and parts[1] == "kB":
            found[name] = int(parts[0]) * 1024
    return found
