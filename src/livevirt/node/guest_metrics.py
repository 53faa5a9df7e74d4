"""Figures of running guests under KubeVirt's names, queried on each scrape.

CPU time and memory are read from the kernel on every scrape. QEMU and guest agents are queried at
most every few seconds, all at once, and a scrape waits for them only briefly: a late answer is
reported by the next scrape, and dropped once it is too old. A QEMU or guest that hangs therefore
never blocks a scrape, and nothing is queried between scrapes.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Generic, TypeVar

import msgspec

from livevirt.errors import LivevirtError
from livevirt.kube.control.metrics import Family, Sample
from livevirt.node.domain import NIC_PREFIX, volume_of
from livevirt.node.guest import Guest
from livevirt.node.local import Local
from livevirt.qemu.agent import Filesystem, GuestAgent, Vcpu
from livevirt.qemu.errors import AgentUnavailable, CommandFailed
from livevirt.qemu.usage import (
    DiskUsage,
    ProcessUsage,
    TransferRates,
    disk_usage,
    meminfo,
    process_usage,
    transfer_rates,
)

WAIT_SECONDS = 0.5  # that a scrape waits for QEMU and guests
QEMU_SECONDS, AGENT_SECONDS = 2.0, 15.0  # between two questions
STALE_SECONDS = 60.0  # after which an answer is dropped
_MEMINFO_BYTES = 8192
_MOST_FILESYSTEMS, _LONGEST = 64, 256  # a guest may say what it likes

_VMI = ("node", "namespace", "name")


def _vmi(name: str, type_: Any, help_: str, *labels: str) -> Family:
    return Family(f"kubevirt_vmi_{name}", type_, help_, (*_VMI, *labels))


CPU = _vmi(
    "cpu_usage_seconds_total", "counter", "CPU time of a guest's QEMU process, vCPUs included."
)
CPU_USER = _vmi("cpu_user_usage_seconds_total", "counter", "The part of it spent in user mode.")
CPU_SYSTEM = _vmi("cpu_system_usage_seconds_total", "counter", "The part of it in system mode.")
VCPU = _vmi(
    "vcpu_seconds_total", "counter",
    "CPU time of a vCPU's thread; `state` is offline if the guest has taken the vCPU offline.",
    "id", "state",
)  # fmt: skip
VCPU_DELAY = _vmi(
    "vcpu_delay_seconds_total", "counter",
    "Time a vCPU could have run and waited for a CPU of the host.", "id",
)  # fmt: skip
RESIDENT = _vmi("memory_resident_bytes", "gauge", "Memory of the host that a guest's QEMU holds.")
DOMAIN = _vmi("memory_domain_bytes", "gauge", "Memory that QEMU has given to a guest by now.")
MEMORY = {  # by what they are made of: names in the guest's /proc/meminfo, added or taken off
    _vmi("memory_available_bytes", "gauge", "Memory the guest's kernel manages: MemTotal."): (
        ("MemTotal", 1),
    ),
    _vmi("memory_unused_bytes", "gauge", "Memory the guest uses for nothing: MemFree."): (
        ("MemFree", 1),
    ),
    _vmi("memory_usable_bytes", "gauge", "Memory the guest could use at once: MemAvailable."): (
        ("MemAvailable", 1),
    ),
    _vmi("memory_used_bytes", "gauge", "Memory the guest uses: MemTotal less MemAvailable."): (
        ("MemTotal", 1), ("MemAvailable", -1),
    ),
    _vmi("memory_cached_bytes", "gauge", "Buffers, page cache and swap cache of the guest."): (
        ("Buffers", 1), ("Cached", 1), ("SwapCached", 1),
    ),
}  # fmt: skip
DISK: dict[str, Family] = {
    field_: _vmi(f"storage_{name}_total", "counter", help_, "drive")
    for field_, name, help_ in (
        ("reads", "iops_read", "Read requests of the guest to a disk."),
        ("writes", "iops_write", "Write requests of the guest to a disk."),
        ("flushes", "flush_requests", "Flush requests of the guest to a disk."),
        ("read_bytes", "read_traffic_bytes", "Bytes the guest read from a disk."),
        ("written_bytes", "write_traffic_bytes", "Bytes the guest wrote to a disk."),
        ("read_time", "read_times_seconds", "Time that read requests took."),
        ("write_time", "write_times_seconds", "Time that write requests took."),
        ("flush_time", "flush_times_seconds", "Time that flush requests took."),
    )
}
NETWORK: dict[str, Family] = {
    field_: _vmi(f"network_{name}_total", "counter", f"{help_}, by its own count.", "interface")
    for field_, name, help_ in (
        ("rx-bytes", "receive_bytes", "Bytes the guest received"),
        ("tx-bytes", "transmit_bytes", "Bytes the guest sent"),
        ("rx-packets", "receive_packets", "Packets the guest received"),
        ("tx-packets", "transmit_packets", "Packets the guest sent"),
        ("rx-errs", "receive_errors", "Packets the guest received with errors"),
        ("tx-errs", "transmit_errors", "Packets the guest could not send"),
        ("rx-dropped", "receive_packets_dropped", "Received packets the guest dropped"),
        ("tx-dropped", "transmit_packets_dropped", "Packets the guest dropped before sending"),
    )
}
_FILESYSTEM = ("disk_name", "mount_point", "file_system_type")
CAPACITY = _vmi(
    "filesystem_capacity_bytes", "gauge", "Size of a file system in the guest.", *_FILESYSTEM
)
USED = _vmi(
    "filesystem_used_bytes", "gauge", "Used bytes of a file system in the guest.", *_FILESYSTEM
)
TRANSFER: dict[str, Family] = {
    field_: _vmi(f"migration_{name}", type_, help_)
    for field_, name, type_, help_ in (
        ("total", "data_bytes_total", "counter", "Memory of a guest that is being migrated."),
        ("processed", "data_processed_bytes", "gauge", "Bytes sent so far by a migration."),
        ("remaining", "data_remaining_bytes", "gauge", "Memory that is still to be sent."),
        ("dirty_rate", "dirty_memory_rate_bytes", "gauge",
         "Bytes a second that the guest writes to memory while it is migrated."),
        ("memory_rate", "memory_transfer_rate_bytes", "gauge",
         "Bytes a second that a migration sends."),
    )
}  # fmt: skip

FAMILIES = (
    CPU, CPU_USER, CPU_SYSTEM, VCPU, VCPU_DELAY, RESIDENT, DOMAIN, *MEMORY, *DISK.values(),
    *NETWORK.values(), CAPACITY, USED, *TRANSFER.values(),
)  # fmt: skip

T = TypeVar("T")

log = logging.getLogger(__name__)


class _Counts(msgspec.Struct, frozen=True, rename="kebab"):
    """A network interface as the guest counts; what it leaves out is not reported."""

    hardware_address: str = ""
    statistics: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class QemuFigures:
    """Reported by QEMU."""

    disks: dict[str, DiskUsage] = field(default_factory=dict)
    transfer: TransferRates | None = None


@dataclass(frozen=True, slots=True)
class AgentFigures:
    """Reported by the guest agent."""

    memory: dict[str, int] = field(default_factory=dict)
    network: dict[str, dict[str, int]] = field(default_factory=dict)  # by address
    filesystems: tuple[Filesystem, ...] = ()


class Probe(Generic[T]):
    """One thing that is asked now and then; its last answer is kept for a while."""

    def __init__(self, ask: Callable[[], Awaitable[T]], every: float) -> None:
        self._ask, self._every = ask, every
        self._answer: tuple[float, T] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, now: float) -> asyncio.Task[None] | None:
        """Ask again if it is time to; return the task to wait for, None if there is none.

        A question that an earlier scrape waited for without success is not waited for again.
        """
        due = self._answer is None or now - self._answer[0] >= self._every
        if not due or self.asking:
            return None
        self._task = asyncio.create_task(self._run())
        return self._task

    @property
    def asking(self) -> bool:
        """Whether an answer is still waited for."""
        return self._task is not None and not self._task.done()

    def answer(self, now: float) -> T | None:
        """Return the last answer unless it is too old."""
        fresh = self._answer is not None and now - self._answer[0] < STALE_SECONDS
        return self._answer[1] if fresh and self._answer is not None else None

    def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            self._answer = (monotonic(), await self._ask())
        except LivevirtError as error:  # it is asked again; what it said last grows old
            log.debug("no answer for metrics", extra={"error": str(error)})
        except Exception:  # a mistake of ours must not hide the other figures
            log.exception("metrics not read")


class _Probes:
    """What is asked about one guest."""

    def __init__(self, local: Local, guest: Guest) -> None:
        self._local, self._guest = local, guest
        self._files = True  # whether its agent lets us read files
        self.qemu = Probe(self._ask_qemu, QEMU_SECONDS)
        self.agent = Probe(self._ask_agent, AGENT_SECONDS)

    def start(self, now: float) -> Iterator[asyncio.Task[None]]:
        """Ask what it is time to ask."""
        probes: list[Probe[Any]] = [self.qemu]
        if self._guest.view.agent is not None and self._local.source is None:
            probes.append(self.agent)
        for probe in probes:
            task = probe.start(now)
            if task is not None:
                yield task

    def stop(self) -> None:
        self.qemu.stop()
        self.agent.stop()

    async def _ask_qemu(self) -> QemuFigures:
        qmp = self._guest.qmp()
        if self._local.source is not None:  # it is busy sending: one question is enough
            return QemuFigures(transfer=transfer_rates(await qmp.execute("query-migrate")))
        return QemuFigures(disk_usage(await qmp.execute("query-blockstats")))

    async def _ask_agent(self) -> AgentFigures:
        agent = self._guest.agent
        return AgentFigures(
            await self._memory(agent), await _network(agent), await _filesystems(agent)
        )

    async def _memory(self, agent: GuestAgent) -> dict[str, int]:
        """Return the guest's /proc/meminfo, nothing from a guest that has none or hides it."""
        if not self._files:
            return {}
        try:
            opened = await agent.call("guest-file-open", {"path": "/proc/meminfo", "mode": "r"})
            try:
                asked = {"handle": opened, "count": _MEMINFO_BYTES}
                answer = await agent.call("guest-file-read", asked)
            finally:
                await agent.call("guest-file-close", {"handle": opened})
            return meminfo(base64.b64decode(answer["buf-b64"]).decode(errors="replace"))
        except CommandFailed:
            self._files = False
        except (KeyError, TypeError, ValueError) as error:
            raise AgentUnavailable("the guest agent's answer makes no sense") from error
        return {}


async def _network(agent: GuestAgent) -> dict[str, dict[str, int]]:
    try:
        interfaces = msgspec.convert(
            await agent.call("guest-network-get-interfaces"), tuple[_Counts, ...]
        )
    except (CommandFailed, msgspec.ValidationError):
        return {}
    return {each.hardware_address.lower(): each.statistics for each in interfaces}


async def _filesystems(agent: GuestAgent) -> tuple[Filesystem, ...]:
    try:
        return (await agent.filesystems())[:_MOST_FILESYSTEMS]
    except CommandFailed:
        return ()


class GuestMetrics:
    """Collects the metrics of the guests of some nodes."""

    def __init__(self, pods: Callable[[], Iterable[Local]]) -> None:
        self._pods = pods
        self._probes: dict[Guest, _Probes] = {}

    async def samples(self) -> list[Sample]:
        """Return the figures of every guest that runs here."""
        running = [
            (local, guest)
            for local in self._pods()
            if (guest := local.guest) is not None
            and not guest.ended
            and not local.awaits_guest
            and not local.has_left
        ]
        self._follow(running)
        now = monotonic()
        asked = [task for probes in self._probes.values() for task in probes.start(now)]
        if asked:
            await asyncio.wait(asked, timeout=WAIT_SECONDS)
        pids = [guest.process.pid for _, guest in running]
        used = await asyncio.to_thread(lambda: [process_usage(pid) for pid in pids])
        now = monotonic()
        found: list[Sample] = []
        for (_, guest), usage in zip(running, used, strict=True):
            probes = self._probes[guest]
            found += of_guest(guest, usage, probes.qemu.answer(now), probes.agent.answer(now))
        return found

    def _follow(self, running: Sequence[tuple[Local, Guest]]) -> None:
        here = {guest for _, guest in running}
        for gone in [guest for guest in self._probes if guest not in here]:
            self._probes.pop(gone).stop()
        for local, guest in running:
            if guest not in self._probes:
                self._probes[guest] = _Probes(local, guest)


def of_guest(
    guest: Guest,
    usage: ProcessUsage | None,
    qemu: QemuFigures | None,
    agent: AgentFigures | None,
) -> Iterator[Sample]:
    """Yield the samples of one guest, as far as anything is known of it."""
    intent, view = guest.intent, guest.view
    where = (intent.node, intent.namespace, intent.vmi)
    if usage is not None:
        yield from of_process(where, usage, view.agent.vcpus if view.agent else None)
    if view.observed is not None:
        yield Sample(DOMAIN, where, intent.machine.memory.boot + view.observed.memory.plugged)
    if qemu is not None:
        for id, disk in qemu.disks.items():
            for name, family in DISK.items():
                yield Sample(family, (*where, volume_of(id)), getattr(disk, name))
        if qemu.transfer is not None:
            for name, family in TRANSFER.items():
                yield Sample(family, where, getattr(qemu.transfer, name))
    if agent is not None:
        names = {nic.mac: nic.id.removeprefix(NIC_PREFIX) for nic in intent.machine.nics}
        yield from of_agent(where, agent, names)


def of_process(
    where: tuple[str, ...], usage: ProcessUsage, vcpus: Sequence[Vcpu] | None
) -> Iterator[Sample]:
    """Yield the figures of the process; `vcpus` are as reported by the guest."""
    yield Sample(CPU, where, usage.cpu)
    yield Sample(CPU_USER, where, usage.user)
    yield Sample(CPU_SYSTEM, where, usage.system)
    yield Sample(RESIDENT, where, usage.resident)
    offline = {each.logical_id for each in vcpus or () if not each.online}
    for number, spent in usage.vcpus.items():
        state = "offline" if number in offline else "running"
        yield Sample(VCPU, (*where, str(number), state), spent.ran)
        if spent.delayed is not None:
            yield Sample(VCPU_DELAY, (*where, str(number)), spent.delayed)


def of_agent(
    where: tuple[str, ...], figures: AgentFigures, interfaces: dict[str, str]
) -> Iterator[Sample]:
    """Yield what the guest reports; interfaces that `interfaces` does not name are left out."""
    for family, terms in MEMORY.items():
        if all(name in figures.memory for name, _ in terms):
            amount = sum(sign * figures.memory[name] for name, sign in terms)
            yield Sample(family, where, max(amount, 0))
    for address, counts in figures.network.items():
        name = interfaces.get(address)
        for field_, family in NETWORK.items():
            if name is not None and field_ in counts:
                yield Sample(family, (*where, name), counts[field_])
    for each in {each.mountpoint: each for each in figures.filesystems}.values():
        if each.total_bytes:
            labels = tuple(word[:_LONGEST] for word in (each.name, each.mountpoint, each.type))
            yield Sample(CAPACITY, (*where, *labels), each.total_bytes)
            yield Sample(USED, (*where, *labels), each.used_bytes)
