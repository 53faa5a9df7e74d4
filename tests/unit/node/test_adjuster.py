"""The loop that brings a guest to its size, over guests that behave and guests that do not."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.node import adjuster as adjusters
from livevirt.node.adjuster import Adjuster
from livevirt.qemu.agent import Vcpu
from livevirt.qemu.errors import CommandFailed, Disconnected, NotNow
from livevirt.qemu.machine import Cpu, Machine, Memory, Thread
from livevirt.qemu.observe import CpuSlot, MemoryState, Observed
from livevirt.qemu.plan import PlugCpu, RequestMemory, Seen, SetVcpus, Step
from livevirt.rollout.reservation import Size

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
FRESH = Seen(MACHINE, Observed("running", SLOTS, MemoryState(256 * MIB)), (Vcpu(0, True, False),))


@dataclass
class Stub:
    """A guest that takes all it is given, unless told otherwise."""

    seen: Seen = FRESH
    intent: Any = field(default_factory=lambda: SimpleNamespace(namespace="n", vmi="web"))
    view: Any = field(default_factory=lambda: SimpleNamespace(agent=object()))
    done: list[Step] = field(default_factory=list)
    fail: Callable[[Step], Exception | None] = lambda _: None
    willing: bool = True
    stirred: int = 0

    async def look(self) -> Seen:
        return self.seen

    async def stir(self) -> None:
        self.stirred += 1

    async def do(self, step: Step) -> None:
        if (error := self.fail(step)) is not None:
            raise error
        self.done.append(step)
        now, vcpus = self.seen.observed, self.seen.vcpus or ()
        match step:
            case PlugCpu(_, thread):
                cpus = tuple(replace(s, present=s.present or s.thread == thread) for s in now.cpus)
                now = replace(now, cpus=cpus)
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
        self.seen = Seen(MACHINE, now, vcpus)


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
    monkeypatch.setattr(adjusters, "ACCEPT_SECONDS", 0.05)
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
    monkeypatch.setattr(adjusters, "_FIRST_RETRY", 0.05)
    refusals = iter([CommandFailed("GenericError", "no"), None])
    guest = Stub(fail=lambda step: next(refusals, None))
    async with adjusting(guest) as (adjuster, until):
        adjuster.want(Size(2, 256 * MIB))
        await until(lambda: getattr(adjuster.progress.cpu, "reason", "") == "PlugFailed")
        await until(lambda: size(guest) == Size(2, 256 * MIB))


@pytest.mark.parametrize("error", [NotNow("full"), Disconnected("gone")], ids=["not now", "gone"])
async def test_what_passes_by_itself_is_no_failure(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adjusters, "_LAST_LOOK", 0.02)
    errors = iter([error])
    guest = Stub(fail=lambda step: next(errors, None))
    async with adjusting(guest) as (adjuster, until):
        adjuster.want(Size(2, 256 * MIB))
        await until(lambda: size(guest) == Size(2, 256 * MIB))
        assert getattr(adjuster.progress.cpu, "reason", "") != "PlugFailed"
        assert guest.stirred == isinstance(error, NotNow)  # an idle guest empties no cache


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
