"""Figures of guests: what is asked when, and what becomes of answers that are late or odd."""

from __future__ import annotations

import asyncio
import base64
import os
from typing import Any, cast

import pytest

from livevirt.kube.control.metrics import Family, Sample
from livevirt.node import guest_metrics
from livevirt.node.domain import DISK_PREFIX
from livevirt.node.guest_metrics import AgentFigures, GuestMetrics, of_agent, of_process
from livevirt.node.local import Local
from livevirt.node.process import Process
from livevirt.qemu.agent import Filesystem, Vcpu
from livevirt.qemu.errors import CommandFailed, Disconnected
from livevirt.qemu.usage import ProcessUsage, VcpuTime

from .moving_qemu import MACHINE

WHERE = ("node01", "team", "web")
COUNTS = {
    f"{what}_{count}": 1
    for what in ("rd", "wr", "flush")
    for count in ("operations", "bytes", "total_time_ns")
}
BLOCKS = [{"qdev": f"{DISK_PREFIX}root", "stats": COUNTS}]


def values(found: list[Sample], family: Family) -> dict[tuple[str, ...], float]:
    return {each.labels[3:]: each.value for each in found if each.family is family}


class FakeAgent:
    """A guest agent that answers some commands."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.asked = answers, list[str]()

    async def call(self, command: str, arguments: dict[str, Any] | None = None) -> Any:
        self.asked.append(command)
        if command not in self.answers:
            raise CommandFailed("CommandNotFound", command)
        return self.answers[command]

    async def filesystems(self) -> tuple[Filesystem, ...]:
        return (Filesystem("vda1", "/", "ext4", 30, 100), Filesystem("tmp", "/proc", "proc"))


class FakeGuest:
    """A guest whose QEMU answers when the event is set."""

    ended = False

    def __init__(self, agent: FakeAgent | None = None) -> None:
        names = dict(zip(("node", "namespace", "vmi"), WHERE, strict=True))
        self.intent: Any = type("Intent", (), {**names, "machine": MACHINE})
        self.view: Any = type("View", (), {"observed": None, "agent": None})
        if agent is not None:
            self.view.agent = type("AgentView", (), {"vcpus": ()})
        self.agent = agent
        self.process = Process(os.getpid(), 0)
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = 0
        self.transfer: dict[str, Any] = {}

    def qmp(self) -> FakeGuest:
        return self

    async def execute(self, command: str) -> Any:
        self.asked += 1
        await self.answers.wait()
        if self.ended:
            raise Disconnected("QEMU went away")
        return BLOCKS if command == "query-blockstats" else self.transfer


class FakeLocal:
    """What a node has of the guest's pod."""

    awaits_guest = has_left = False
    source: object | None = None

    def __init__(self, guest: FakeGuest) -> None:
        self.guest = guest


def metrics_of(*locals_: FakeLocal) -> GuestMetrics:
    return GuestMetrics(lambda: cast(list[Local], locals_))


READS = guest_metrics.DISK["reads"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that passes when a test says so."""
    now = [1000.0]
    monkeypatch.setattr(guest_metrics, "monotonic", lambda: now[0])
    monkeypatch.setattr(guest_metrics, "WAIT_SECONDS", 0.05)
    return now


async def test_given_scrapes_in_a_row_then_qemu_is_asked_now_and_then(clock: list[float]) -> None:
    guest = FakeGuest()
    metrics = metrics_of(FakeLocal(guest))
    assert guest.asked == 0  # while nobody scrapes
    for _ in range(3):
        found = await metrics.samples()
    assert guest.asked == 1
    assert values(found, READS) == {("root",): 1}
    assert values(found, guest_metrics.CPU)[()] > 0
    clock[0] += guest_metrics.QEMU_SECONDS
    await metrics.samples()
    assert guest.asked == 2


async def test_given_a_qemu_that_hangs_then_the_rest_is_told_and_it_is_asked_once(
    clock: list[float],
) -> None:
    hung, well = FakeGuest(), FakeGuest()
    metrics = metrics_of(FakeLocal(hung), FakeLocal(well))
    await metrics.samples()
    hung.answers.clear()
    clock[0] += guest_metrics.QEMU_SECONDS
    found = await metrics.samples()
    assert len([each for each in found if each.family is READS]) == 2  # one of them is old
    clock[0] += guest_metrics.STALE_SECONDS
    began = asyncio.get_running_loop().time()
    found = await metrics.samples()
    assert asyncio.get_running_loop().time() - began < guest_metrics.WAIT_SECONDS  # not for it
    assert len([each for each in found if each.family is READS]) == 1
    assert len([each for each in found if each.family is guest_metrics.CPU]) == 2
    assert hung.asked == 2
    hung.answers.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len([e for e in await metrics.samples() if e.family is READS]) == 2


async def test_given_a_guest_that_is_gone_then_nothing_is_kept_of_it(clock: list[float]) -> None:
    guest = FakeGuest()
    guest.answers.clear()
    metrics = metrics_of(FakeLocal(guest))
    await metrics.samples()
    guest.ended = True
    assert await metrics.samples() == []
    assert metrics._probes == {}


async def test_given_a_guest_on_its_way_then_only_its_transfer_is_asked_for(
    clock: list[float],
) -> None:
    guest = FakeGuest(FakeAgent())
    guest.transfer = {
        "status": "active",
        "ram": {"total": 9, "remaining": 4, "transferred": 5, "mbps": 0, "dirty-pages-rate": 1,
                "page-size": 4096},
    }  # fmt: skip
    local = FakeLocal(guest)
    local.source = object()
    found = await metrics_of(local).samples()
    assert values(found, guest_metrics.TRANSFER["remaining"]) == {(): 4}
    assert values(found, READS) == {}
    assert guest.agent is not None
    assert guest.agent.asked == []


async def test_given_an_agent_then_the_guest_is_asked_for_all_it_tells(clock: list[float]) -> None:
    text = base64.b64encode(b"MemTotal: 100 kB\nMemAvailable: 60 kB\n").decode()
    agent = FakeAgent(
        **{
            "guest-file-open": 1000,
            "guest-file-read": {"buf-b64": text},
            "guest-file-close": {},
            "guest-network-get-interfaces": [{"name": "lo"}],
        }
    )
    metrics = metrics_of(FakeLocal(FakeGuest(agent)))
    found = await metrics.samples()
    told = {family.name: values(found, family) for family in guest_metrics.MEMORY}
    assert told["kubevirt_vmi_memory_used_bytes"] == {(): 40 * 1024}
    assert told["kubevirt_vmi_memory_cached_bytes"] == {}  # it did not say
    assert values(found, guest_metrics.USED) == {("vda1", "/", "ext4"): 30}
    assert agent.asked.count("guest-file-close") == 1
    await metrics.samples()
    assert agent.asked.count("guest-file-open") == 1  # it is not time yet


async def test_given_an_agent_that_hides_files_then_it_is_not_asked_for_them_again(
    clock: list[float],
) -> None:
    agent = FakeAgent(**{"guest-network-get-interfaces": "nonsense"})
    metrics = metrics_of(FakeLocal(FakeGuest(agent)))
    for _ in range(3):
        found = await metrics.samples()
        clock[0] += guest_metrics.AGENT_SECONDS
    assert agent.asked.count("guest-file-open") == 1
    assert agent.asked.count("guest-network-get-interfaces") == 3
    assert values(found, guest_metrics.CAPACITY) == {("vda1", "/", "ext4"): 100}


def test_given_vcpus_then_those_the_guest_took_offline_say_so() -> None:
    usage = ProcessUsage(1.0, 0.5, 4096, {0: VcpuTime(1.0, 0.25), 1: VcpuTime(0.5)})
    found = list(of_process(WHERE, usage, (Vcpu(0, True), Vcpu(1, False))))
    assert values(found, guest_metrics.VCPU) == {("0", "running"): 1.0, ("1", "offline"): 0.5}
    assert values(found, guest_metrics.VCPU_DELAY) == {("0",): 0.25}
    assert values(found, guest_metrics.CPU) == {(): 1.5}


def test_given_interfaces_then_those_of_the_spec_are_told_by_their_names() -> None:
    counts = {"rx-bytes": 7, "tx-bytes": 8}
    told = AgentFigures(network={"02:00": counts, "00:00": {"rx-bytes": 1}})
    found = list(of_agent(WHERE, told, {"02:00": "default"}))
    assert values(found, guest_metrics.NETWORK["rx-bytes"]) == {("default",): 7}
    assert values(found, guest_metrics.NETWORK["rx-errs"]) == {}
