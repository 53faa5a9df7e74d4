"""The loop calls reconcile for what changed, retries what failed, and cannot be killed by it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from livevirt.errors import Conflict, LivevirtError, Terminal
from livevirt.kube.client.local import LocalClient
from livevirt.kube.control.cache import Key, owner_key
from livevirt.kube.control.clock import ManualClock
from livevirt.kube.control.controller import DONE, Controller, Reconcile, Result
from livevirt.kube.control.informer import Informer
from livevirt.kube.control.queue import Queue
from livevirt.kube.objects.core import POD
from livevirt.kube.objects.request import Object, User
from livevirt.vm.kinds import VM

from .memory_handler import MemoryHandler, settle, until

A, B = Key("ns", "a"), Key("ns", "b")


class Script:
    """A reconcile that does as told, call by call, and then is content."""

    def __init__(self, *outcomes: Result | BaseException) -> None:
        self.outcomes = list(outcomes)
        self.calls: list[Key] = []

    async def __call__(self, key: Key) -> Result:
        self.calls.append(key)
        outcome = self.outcomes.pop(0) if self.outcomes else DONE
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def a_controller(reconcile: Reconcile, clock: ManualClock, workers: int = 1) -> Controller:
    queue: Queue[Key] = Queue(base=1.0, cap=8.0, clock=clock)
    return Controller("test", reconcile, workers=workers, queue=queue)


@asynccontextmanager
async def working(controller: Controller) -> AsyncIterator[None]:
    task = asyncio.create_task(controller.run())
    try:
        yield
        assert not task.done(), "the loop ended"
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_key_is_reconciled_once_and_then_left_alone() -> None:
    reconcile, clock = Script(), ManualClock()
    controller = a_controller(reconcile, clock)
    async with working(controller):
        controller.queue.add(A)
        await until(lambda: reconcile.calls == [A])
        clock.advance(1000)
        await settle()
    assert reconcile.calls == [A]


async def test_given_an_after_then_it_is_called_again_by_then() -> None:
    reconcile, clock = Script(Result(after=timedelta(seconds=30))), ManualClock()
    controller = a_controller(reconcile, clock)
    async with working(controller):
        controller.queue.add(A)
        await settle()
        clock.advance(29)
        await settle()
        assert reconcile.calls == [A]
        clock.advance(1)
        await until(lambda: reconcile.calls == [A, A])


async def test_a_failing_key_comes_back_later_each_time_and_success_is_forgiveness(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = LivevirtError("not yet")
    reconcile, clock = Script(error, error, error, DONE, error), ManualClock()
    controller = a_controller(reconcile, clock)
    async with working(controller):
        controller.queue.add(A)
        await settle()
        for calls, wait in ((1, 1.0), (2, 2.0), (3, 4.0)):
            assert len(reconcile.calls) == calls
            clock.advance(wait - 0.5)
            await settle()
            assert len(reconcile.calls) == calls
            clock.advance(0.5)
            await settle()
        assert len(reconcile.calls) == 4
        controller.queue.add(A)
        await settle()
        clock.advance(1.0)
        await until(lambda: len(reconcile.calls) == 6)
    waits = [r.__dict__["retry_in"] for r in caplog.records if r.message == "reconcile failed"]
    assert waits == [1.0, 2.0, 4.0, 1.0]


async def test_a_bug_is_logged_with_its_trace_and_the_loop_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reconcile, clock = Script(ZeroDivisionError("a bug")), ManualClock()
    controller = a_controller(reconcile, clock)
    async with working(controller):
        controller.queue.add(A)
        controller.queue.add(B)
        await until(lambda: reconcile.calls == [A, B])
        clock.advance(1)
        await until(lambda: reconcile.calls == [A, B, A])
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.exc_info is not None
    assert record.__dict__["key"] == "ns/a"


async def test_a_terminal_error_is_not_tried_again_until_something_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reconcile, clock = Script(Terminal("no machine type of that name")), ManualClock()
    controller = a_controller(reconcile, clock)
    async with working(controller):
        controller.queue.add(A)
        await settle()
        clock.advance(1000)
        await settle()
        assert reconcile.calls == [A]
        controller.queue.add(A)
        await until(lambda: reconcile.calls == [A, A])
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_a_conflict_is_tried_again_at_once_and_quietly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    reconcile, clock = Script(Conflict("somebody was faster")), ManualClock()
    controller = a_controller(reconcile, clock)
    async with working(controller):
        controller.queue.add(A)
        await until(lambda: reconcile.calls == [A, A])  # no time has passed
    assert caplog.records == []


async def test_a_conflict_that_stays_does_not_spin() -> None:
    reconcile, clock = Script(*[Conflict("again")] * 10), ManualClock()
    controller = a_controller(reconcile, clock)
    async with working(controller):
        controller.queue.add(A)
        await settle(100)
        assert reconcile.calls == [A, A]
        clock.advance(2)
        await settle(100)
        assert reconcile.calls == [A, A, A]


async def test_given_something_inside_was_cancelled_then_that_is_a_failure_like_another() -> None:
    reconcile, clock = Script(asyncio.CancelledError()), ManualClock()
    controller = a_controller(reconcile, clock)
    async with working(controller):
        controller.queue.add(A)
        await settle()
        clock.advance(1)
        await until(lambda: reconcile.calls == [A, A])


async def test_one_key_is_never_worked_on_twice_at_once_and_others_are_meanwhile() -> None:
    gate, running, most = asyncio.Event(), [], []

    async def reconcile(key: Key) -> Result:
        running.append(key)
        most.append(sorted(running))
        await gate.wait()
        running.remove(key)
        return DONE

    controller = a_controller(reconcile, ManualClock(), workers=3)
    async with working(controller):
        controller.queue.add(A)
        await settle()
        controller.queue.add(A)
        controller.queue.add(B)
        await until(lambda: most == [[A], [A, B]])
        gate.set()
        await until(lambda: len(most) == 3)  # the second wish for A, afterwards
    assert all(len(set(keys)) == len(keys) for keys in most)


async def test_when_cancelled_in_the_middle_then_the_next_run_takes_the_key_up_again() -> None:
    gate, calls = asyncio.Event(), []

    async def reconcile(key: Key) -> Result:
        calls.append(key)
        await gate.wait()
        return DONE

    controller = a_controller(reconcile, ManualClock())
    async with working(controller):
        controller.queue.add(A)
        await until(lambda: calls == [A])
    gate.set()
    async with working(controller):
        await until(lambda: calls == [A, A])


async def test_when_the_queue_is_shut_down_then_run_returns() -> None:
    controller = a_controller(Script(), ManualClock())
    controller.queue.shut_down()
    async with asyncio.timeout(5):
        await controller.run()


def owned_by(name: str) -> Object:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name}
    return {"ownerReferences": [owner | {"controller": True, "uid": f"uid-of-{name}"}]}


async def test_informers_wake_owners_and_a_moved_object_wakes_both() -> None:
    server, reconcile, clock = MemoryHandler(), Script(), ManualClock()
    client = LocalClient(server, User("test"))
    vms, pods = Informer(client, VM, clock=clock), Informer(client, POD, clock=clock)
    controller = a_controller(reconcile, clock)
    controller.watches(vms).watches(pods, by_label_owner)
    server.put("virtualmachines.kubevirt.io", "ns", "own")
    server.put("pods", "ns", "pod", owner="a")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in (vms.run(), pods.run(), controller.run())]
        await until(lambda: sorted(reconcile.calls) == [A, Key("ns", "own")])
        reconcile.calls.clear()
        server.put("pods", "ns", "pod", owner="b")
        await until(lambda: sorted(reconcile.calls) == [A, B])
        reconcile.calls.clear()
        server.drop("pods", "ns", "pod")
        await until(lambda: reconcile.calls == [B])
        for task in tasks:
            task.cancel()


def by_label_owner(obj: Object) -> list[Key]:
    return [Key(obj["metadata"]["namespace"], obj["owner"])]


async def test_nothing_is_reconciled_before_the_informers_are_synced() -> None:
    server, reconcile, clock = MemoryHandler(), Script(), ManualClock()
    server.put("pods", "ns", "a")
    pods = Informer(LocalClient(server, User("test")), POD, clock=clock)
    controller = a_controller(reconcile, clock).watches(pods)
    controller.queue.add(B)
    async with working(controller):
        await settle()
        assert reconcile.calls == []
        follow = asyncio.create_task(pods.run())
        await until(lambda: reconcile.calls == [B, A])
        follow.cancel()
        await asyncio.wait({follow})


OWNERS = {
    "given its controller, then that": (owned_by("web"), [Key("ns", "web")]),
    "given no owner, then nothing": ({}, []),
    "given an owner that is no controller, then nothing": (
        {"ownerReferences": [owned_by("web")["ownerReferences"][0] | {"controller": False}]},
        [],
    ),
    "given a controller of another group, then nothing": (
        {"ownerReferences": [owned_by("web")["ownerReferences"][0] | {"apiVersion": "v1"}]},
        [],
    ),
}


@pytest.mark.parametrize(("metadata", "keys"), OWNERS.values(), ids=OWNERS)
def test_owner_key(metadata: Object, keys: list[Key]) -> None:
    obj = {"metadata": {"namespace": "ns", "name": "pod"} | metadata}
    assert list(owner_key(VM)(obj)) == keys
