"""The loop that brings a guest to its size, over guests that behave and guests that do not."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.node import adjuster as node_adjuster
from livevirt.node.adjuster import Adjuster
from livevirt.node.guest import AgentView
from livevirt.qemu.agent import Vcpu
from livevirt.qemu.errors import AgentUnavailable, CommandFailed, Disconnected
from livevirt.qemu.guest_memory import GuestMemory, MemoryBlock
from livevirt.qemu.machine import Cpu, Machine, Memory, Thread
from livevirt.qemu.observe import CpuSlot, MemoryState, Observed
from livevirt.qemu.plan import (
    MachineSnapshot,
    OnlineMemory,
    PlugCpu,
    PrepareMemory,
    RequestMemory,
    SetVcpus,
    Step,
)
from livevirt.vm.sizing.reservation import Size

MIB = 2**20
MACHINE = Machine(
    name="web",
    uuid="00000000-0000-0000-0000-000000000001",
    accelerator="tcg",
    cpu=Cpu(model="max", max_sockets=4),
    memory=Memory(boot=256 * MIB, max=1024 * MIB),
    run_dir="/run/1",
    serial_log="/log",
)
SLOTS = tuple(CpuSlot(Thread(n, 0, 0), "max-x86_64-cpu", n == 0) for n in range(4))
FRESH = MachineSnapshot(
    MACHINE, Observed("running", SLOTS, MemoryState(256 * MIB)), (Vcpu(0, True, False),)
)


@dataclass
class Stub:
    """A guest that takes all it is given, unless told otherwise."""

    seen: MachineSnapshot = FRESH
    intent: Any = field(default_factory=lambda: SimpleNamespace(namespace="n", vmi="web"))
    view: Any = field(default_factory=lambda: SimpleNamespace(agent=AgentView("7.2")))
    done: list[Step] = field(default_factory=list)
    fail: Callable[[Step], Exception | None] = lambda _: None
    willing: bool = True
    places: int = 4  # CPUs that can be plugged
    asked: int = 0  # how often that was asked
    stirred: int = 0

    async def look(self) -> MachineSnapshot:
        return self.seen

    async def room(self) -> int:
        self.asked += 1
        return self.places

    async def stir(self) -> bool:
        self.stirred += 1
        self.places = 4
        return True

    async def do(self, step: Step) -> None:
        if (error := self.fail(step)) is not None:
            raise error
        self.done.append(step)
        now, vcpus = self.seen.observed, self.seen.vcpus or ()
        match step:
            case PlugCpu(_, thread):
                cpus = tuple(replace(s, present=s.present or s.thread == thread) for s in now.cpus)
                now = replace(now, cpus=cpus)
                self.places -= 1
                vcpus = (*vcpus, Vcpu(len(vcpus), False, True))
            case SetVcpus(ids, online) if self.willing:
                vcpus = tuple(
                    Vcpu(v.logical_id, online if v.logical_id in ids else v.online, True)
                    for v in vcpus
                )
            case RequestMemory(size):
                taken = size if self.willing else now.memory.plugged
                memory = replace(now.memory, requested=size, plugged=taken)
                now = replace(now, memory=memory)
        self.seen = MachineSnapshot(MACHINE, now, vcpus)


@asynccontextmanager
async def adjusting(guest: Stub) -> AsyncIterator[tuple[Adjuster, Callable[..., Any]]]:
    woken = asyncio.Event()
    adjuster = Adjuster(guest, woken.set)  # type: ignore[arg-type]

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 - the stub tells nobody when it changes
                await asyncio.sleep(0.005)

    try:
        yield adjuster, until
    finally:
        adjuster.stop()


def size(guest: Stub) -> Size:
    return Size(guest.seen.sockets, guest.seen.memory)


async def test_a_guest_is_brought_to_its_size_and_back() -> None:
    guest = Stub()
    async with adjusting(guest) as (adjuster, until):
        for wanted in (Size(3, 512 * MIB), Size(1, 256 * MIB), Size(2, 1024 * MIB)):
            adjuster.want(wanted)
            await until(lambda wanted=wanted: size(guest) == wanted)
    plugged = [step.thread.socket for step in guest.done if isinstance(step, PlugCpu)]
    assert plugged == [1, 2]  # none twice: what is offline comes online again


async def test_a_guest_that_has_its_size_is_left_alone() -> None:
    guest = Stub(fail=lambda step: AssertionError(f"did {step}"))
    async with adjusting(guest) as (adjuster, _):
        adjuster.want(Size(1, 256 * MIB))
        await asyncio.sleep(0.05)
    assert guest.done == []


async def test_the_newest_wish_takes_over() -> None:
    guest = Stub(willing=False)
    async with adjusting(guest) as (adjuster, until):
        for sockets in (2, 3, 4, 1):
            adjuster.want(Size(sockets, 256 * MIB))
            await asyncio.sleep(0)
        guest.willing = True
        adjuster.want(Size(2, 512 * MIB))
        await until(lambda: size(guest) == Size(2, 512 * MIB))


async def test_a_guest_that_does_nothing_is_said_so_and_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_adjuster, "ACCEPT_SECONDS", 0.05)
    guest = Stub(willing=False)
    async with adjusting(guest) as (adjuster, until):
        adjuster.want(Size(2, 512 * MIB))
        await until(lambda: (adjuster.progress.cpu or adjuster.progress.memory) is not None)
        await until(lambda: getattr(adjuster.progress.cpu, "reason", "") == "GuestNotAccepting")
        assert getattr(adjuster.progress.memory, "reason", "") == "GuestNotAccepting"
        guest.willing = True
        guest.seen = replace(
            guest.seen,
            observed=replace(
                guest.seen.observed, memory=MemoryState(256 * MIB, 256 * MIB, 256 * MIB)
            ),
        )
        await until(lambda: size(guest) == Size(2, 512 * MIB))
        await until(lambda: adjuster.progress.cpu is None and adjuster.progress.memory is None)


async def test_what_qemu_refuses_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_adjuster, "_FIRST_RETRY", 0.05)
    refusals = iter([CommandFailed("GenericError", "no"), None])
    guest = Stub(fail=lambda step: next(refusals, None))
    async with adjusting(guest) as (adjuster, until):
        adjuster.want(Size(2, 256 * MIB))
        await until(lambda: getattr(adjuster.progress.cpu, "reason", "") == "PlugFailed")
        await until(lambda: size(guest) == Size(2, 256 * MIB))


async def test_a_qemu_that_is_gone_for_a_moment_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_adjuster, "_LAST_LOOK", 0.02)
    errors = iter([Disconnected("gone")])
    guest = Stub(fail=lambda step: next(errors, None))
    async with adjusting(guest) as (adjuster, until):
        adjuster.want(Size(2, 256 * MIB))
        await until(lambda: size(guest) == Size(2, 256 * MIB))
        assert getattr(adjuster.progress.cpu, "reason", "") != "PlugFailed"


async def test_a_mistake_of_ours_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = Stub()
    looks = 0

    async def look() -> MachineSnapshot:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise KeyError("return")
        return guest.seen

    monkeypatch.setattr(guest, "look", look)
    async with adjusting(guest) as (adjuster, until):
        adjuster.want(Size(2, 256 * MIB))
        await until(lambda: looks > 1 and size(guest) == Size(2, 256 * MIB))
        adjuster.want(Size(2, 512 * MIB))
        await until(lambda: size(guest) == Size(2, 512 * MIB))


async def test_given_no_room_for_a_cpu_then_memory_comes_at_once_and_the_cpu_when_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_adjuster, "_WAIT_SECONDS", 0.02)
    stirred = asyncio.Event()
    guest = Stub(places=0)

    async def stir() -> bool:
        await stirred.wait()
        guest.places = 4
        return True

    monkeypatch.setattr(guest, "stir", stir)
    async with adjusting(guest) as (adjuster, until):
        adjuster.want(Size(2, 512 * MIB))
        await until(lambda: guest.seen.memory == 512 * MIB)
        adjuster.want(Size(2, 768 * MIB))  # a newer wish does not wait either
        await until(lambda: guest.seen.memory == 768 * MIB)
        assert guest.seen.observed.sockets == 1
        stirred.set()
        await until(lambda: size(guest) == Size(2, 768 * MIB))


async def test_room_for_a_cpu_that_will_come_soon_is_found_before_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_adjuster, "FRESH_SECONDS", 60)
    guest = Stub(places=0)
    async with adjusting(guest) as (adjuster, until):
        for _ in range(3):
            adjuster.want(Size(1, 256 * MIB), soon=3)
            await until(lambda: (guest.asked, guest.stirred) == (2, 1))
        assert guest.done == []
        adjuster.want(Size(3, 256 * MIB), soon=3)
        await until(lambda: size(guest) == Size(3, 256 * MIB))
        assert guest.asked == 2  # it was fresh, and enough for both


async def test_given_only_cpus_that_are_offline_then_nothing_is_prepared() -> None:
    guest = Stub()
    async with adjusting(guest) as (adjuster, until):
        for sockets in (2, 1):
            adjuster.want(Size(sockets, 256 * MIB), soon=sockets)
            await until(lambda sockets=sockets: guest.seen.sockets == sockets)
        asked = guest.asked
        adjuster.want(Size(1, 256 * MIB), soon=2)
        adjuster.want(Size(2, 256 * MIB), soon=2)
        await until(lambda: guest.seen.sockets == 2)
        assert guest.asked == asked


async def test_room_for_the_next_cpu_is_made_when_it_is_calm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_adjuster, "_CALM", 0.02)
    guest = Stub(places=1)
    async with adjusting(guest) as (adjuster, until):
        adjuster.want(Size(2, 256 * MIB))
        await until(lambda: guest.stirred == 1)
    assert size(guest) == Size(2, 256 * MIB)


async def test_a_cpu_is_not_plugged_again_by_who_has_not_looked_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_adjuster, "_PLUG_LOOK", 60)
    guest = Stub()
    before = guest.seen
    async with adjusting(guest) as (adjuster, until):
        adjuster.want(Size(2, 256 * MIB))
        await until(lambda: guest.done != [])
        guest.seen = before  # as what was seen last is, until the next look
        adjuster.want(Size(2, 512 * MIB))
        await until(lambda: any(isinstance(step, RequestMemory) for step in guest.done))
    assert [type(step) for step in guest.done] == [PlugCpu, RequestMemory]


async def test_a_guest_that_rebooted_is_brought_to_its_size_again() -> None:
    guest = Stub()
    async with adjusting(guest) as (adjuster, until):
        adjuster.want(Size(2, 256 * MIB))
        await until(lambda: guest.seen.sockets == 2)
        adjuster.want(Size(1, 256 * MIB))
        await until(lambda: guest.seen.sockets == 1)
        everything = tuple(Vcpu(n, True, n > 0) for n in range(2))  # as a fresh boot has it
        guest.seen, guest.view = replace(guest.seen, vcpus=None), SimpleNamespace(agent=None)
        adjuster.want(Size(1, 256 * MIB))
        guest.seen, guest.view = replace(guest.seen, vcpus=everything), SimpleNamespace(agent=1)
        adjuster.want(Size(1, 256 * MIB))
        await until(lambda: guest.seen.sockets == 1)


async def test_whoever_asks_about_a_change_that_has_just_begun_is_woken_when_it_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("livevirt.node.adjuster.QUIET_SECONDS", 0.05)
    woken = asyncio.Event()
    adjusting = Adjuster(Stub(), woken.set)  # type: ignore[arg-type]
    assert not adjusting.is_brief(False)
    assert adjusting.is_brief(True)
    async with asyncio.timeout(10):
        await woken.wait()
    assert not adjusting.is_brief(True)
    assert not adjusting.is_brief(False)
    assert adjusting.is_brief(True)  # the next change
    adjusting.stop()


# ---------------------------------------------------------------- memory that stays offline

BLOCK = 128 * MIB


@dataclass
class Reporting(Stub):
    """A guest whose agent lists memory blocks; its kernel leaves new ones offline."""

    prepares: bool = True  # its agent may change that
    online: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.seen = replace(FRESH, blocks=GuestMemory(), agent=True)

    async def do(self, step: Step) -> None:
        if (error := self.fail(step)) is not None:
            raise error
        self.done.append(step)
        state, setting = self.seen.observed.memory, self.seen.auto_online
        match step:
            case PrepareMemory():
                setting = "online_movable" if self.prepares else ""
            case OnlineMemory(blocks):
                self.online |= set(blocks)
            case RequestMemory(size):
                state = MemoryState(256 * MIB, size, size, 768 * MIB, 32 * BLOCK)
                if setting == "online_movable":
                    self.online |= {32 + n for n in range(size // BLOCK)}
        blocks = tuple(
            MemoryBlock(32 + n, 32 + n in self.online) for n in range(state.plugged // BLOCK)
        )
        self.seen = replace(
            self.seen,
            observed=replace(self.seen.observed, memory=state),
            blocks=GuestMemory(BLOCK, blocks),
            auto_online=setting,
        )


async def test_the_kernel_is_prepared_once_before_the_first_growth() -> None:
    guest = Reporting()
    async with adjusting(guest) as (adjuster, until):
        for wanted in (512, 768):
            adjuster.want(Size(1, wanted * MIB))
            await until(lambda wanted=wanted: size(guest) == Size(1, wanted * MIB))
    assert guest.done == [PrepareMemory(), RequestMemory(256 * MIB), RequestMemory(512 * MIB)]


async def test_given_the_agent_may_not_prepare_then_blocks_are_brought_online() -> None:
    guest = Reporting(prepares=False)
    async with adjusting(guest) as (adjuster, until):
        adjuster.want(Size(1, 512 * MIB))
        await until(lambda: size(guest) == Size(1, 512 * MIB))
    assert guest.done == [PrepareMemory(), RequestMemory(256 * MIB), OnlineMemory((32, 33))]


async def test_given_the_agent_hangs_while_it_prepares_then_memory_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_adjuster, "_LAST_LOOK", 0.02)
    errors = iter([AgentUnavailable("it hangs")])
    guest = Reporting(fail=lambda step: next(errors, None))
    async with adjusting(guest) as (adjuster, until):
        adjuster.want(Size(1, 512 * MIB))
        await until(lambda: size(guest) == Size(1, 512 * MIB))
    assert guest.done[0] == PrepareMemory()


async def test_given_blocks_that_stay_offline_then_the_guest_does_not_accept_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_adjuster, "ACCEPT_SECONDS", 0.05)

    def fail(step: Step) -> Exception | None:
        return CommandFailed("x", "disabled") if isinstance(step, OnlineMemory) else None

    guest = Reporting(prepares=False, fail=fail)
    async with adjusting(guest) as (adjuster, until):
        adjuster.want(Size(1, 512 * MIB))
        await until(lambda: getattr(adjuster.progress.memory, "reason", "") == "GuestNotAccepting")
        assert adjuster.progress.memory is not None
        assert adjuster.progress.memory.cause == "MemoryOffline"
        assert guest.seen.memory == 256 * MIB
