"""What the pods of this machine's nodes use: CPU as an average over a window, and memory.

The kernel counts both in the pods' cgroups; where a host counts something nowhere we can read, the
QEMU process itself is looked at. Nothing is sampled between questions: the first one, and one after
a long silence, looks twice with a second in between.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import sleep
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from livevirt.kube.control.cache import Key
from livevirt.kube.control.clock import Now
from livevirt.kube.objects.node_share import Usage, Use
from livevirt.node.intent import CgroupDir
from livevirt.node.local import Local
from livevirt.qemu.usage import process_usage

CONTAINER = "compute"
SHORTEST, LONGEST = 1.0, 60.0  # seconds of a window
_NANO = 10**9


class Counted(NamedTuple):
    """CPU time in billionths of a second since a pod started, and bytes of memory."""

    cpu_nano: int
    memory: int


class Pod(NamedTuple):
    """Where a pod's figures are found."""

    key: Key
    node: str
    cgroups: tuple[CgroupDir, ...]
    pid: int


@dataclass(frozen=True, slots=True)
class Look:
    """What all pods had used at one moment; `pods` are by node and key."""

    at: float
    pods: Mapping[tuple[str, Key], Counted]


class PodUsage:
    """Measures the pods of some nodes; a `UsageSource`."""

    def __init__(
        self, nodes: Callable[[], Iterable[tuple[str, Iterable[Local]]]], now: Now
    ) -> None:
        self._nodes, self._now = nodes, now
        self._before: Look | None = None
        self._last: tuple[float, Usage] | None = None
        self._turn = asyncio.Lock()  # who asks at the same time gets the same answer

    async def __call__(self) -> Usage:
        """Return what every pod and node uses."""
        async with self._turn:
            if self._last is not None and monotonic() - self._last[0] < SHORTEST:
                return self._last[1]
            before, after = self._before, await self._look()
            if before is None or after.at - before.at > LONGEST or not _covers(before, after):
                before = after
                await sleep(SHORTEST)
                after = await self._look()
            self._before = after
            usage = self._usage(before, after)
            self._last = (monotonic(), usage)
            return usage

    def _usage(self, before: Look, after: Look) -> Usage:
        used = rates(before, after)
        nodes = {name: Use(0, 0) for name, _ in self._nodes()}
        for (node, _), (cpu, memory) in used.items():
            sums = nodes.get(node, Use(0, 0))
            nodes[node] = Use(sums.cpu_nano + cpu, sums.memory + memory)
        pods = {(key.namespace, key.name): {CONTAINER: use} for (_, key), use in used.items()}
        return Usage(self._now(), after.at - before.at, pods, nodes)

    async def _look(self) -> Look:
        pods = [
            Pod(local.key, name, local.intent.cgroups, local.guest.process.pid)
            for name, locals_ in self._nodes()
            for local in locals_
            if local.intent is not None and local.guest is not None and not local.guest.ended
        ]
        return await asyncio.to_thread(look, pods)


def look(pods: Sequence[Pod]) -> Look:
    """Read what these pods have used; those that are gone are left out."""
    found = {}
    for pod in pods:
        counted = count(pod)
        if counted is not None:
            found[pod.node, pod.key] = counted
    return Look(monotonic(), found)


def count(pod: Pod) -> Counted | None:
    """Return what a pod has used by its cgroups, else by its process; None if it is gone."""
    cpu, memory = cgroup_cpu(pod.cgroups), working_set(pod.cgroups)
    if cpu is None or memory is None:
        process = process_usage(pod.pid, vcpus=False)
        if process is None:
            return None
        cpu = int(process.cpu * _NANO) if cpu is None else cpu
        memory = process.resident if memory is None else memory
    return Counted(cpu, memory)


def cgroup_cpu(folders: Iterable[CgroupDir]) -> int | None:
    """Return the CPU time of a cgroup in billionths of a second, None if none is counted there."""
    for folder in folders:
        if "cpu" in folder.controllers:
            # Version 1 counts with a controller of its own, usually mounted at the same place.
            with contextlib.suppress(OSError, KeyError, ValueError):
                if folder.version == 2:
                    return _stat(Path(folder.path, "cpu.stat"))["usage_usec"] * 1000
                return int(Path(folder.path, "cpuacct.usage").read_text())
    return None


def working_set(folders: Iterable[CgroupDir]) -> int | None:
    """Return the memory of a cgroup less inactive file pages, as a kubelet counts it."""
    for folder in folders:
        if "memory" in folder.controllers:
            name, idle = (
                ("memory.current", "inactive_file")
                if folder.version == 2
                else ("memory.usage_in_bytes", "total_inactive_file")
            )
            with contextlib.suppress(OSError, ValueError):
                used = int(Path(folder.path, name).read_text())
                return max(used - _stat(Path(folder.path, "memory.stat")).get(idle, 0), 0)
    return None


def _stat(file: Path) -> dict[str, int]:
    pairs = (line.split() for line in file.read_text().splitlines())
    return {name: int(value) for name, value in pairs}


def rates(before: Look, after: Look) -> dict[tuple[str, Key], Use]:
    """Return the averages between two looks, of pods that are in both."""
    seconds = max(after.at - before.at, 1e-3)
    found = {}
    for pod, now in after.pods.items():
        if (then := before.pods.get(pod)) is not None:
            spent = max(now.cpu_nano - then.cpu_nano, 0)  # a new process began at nothing
            found[pod] = Use(int(spent / seconds), now.memory)
    return found


def _covers(before: Look, after: Look) -> bool:
    """Return whether every pod was there before."""
    return before.pods.keys() >= after.pods.keys()
