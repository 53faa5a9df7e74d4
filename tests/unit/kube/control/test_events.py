"""Events are folded, floods are cut, and telling never waits or fails."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from livevirt.errors import Forbidden
from livevirt.kube.client.local import LocalClient
from livevirt.kube.control import events
from livevirt.kube.control.events import Recorder, reference
from livevirt.kube.control.folding import (
    BURST,
    COMBINED,
    SIMILAR,
    Create,
    Folding,
    Occurrence,
    Repeat,
)
from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object, User

from .memory_handler import UNREACHABLE, MemoryHandler, settle, until

NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def a_vm(name: str = "web", namespace: str = "ns") -> Object:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
    }


def said(message: str, reason: str = "Started", vm: str = "web") -> Occurrence:
    return Occurrence(reference(a_vm(vm)), "Normal", reason, message)


def after(**passed: float) -> datetime:
    return NOON + timedelta(**passed)


# ---------------------------------------------------------------- folding


def test_a_first_occurrence_becomes_an_event() -> None:
    step = Folding("livevirt", "host-1").fold(said("it runs"), NOON)
    assert isinstance(step, Create)
    name = step.event["metadata"].pop("name")
    assert name.startswith("web.")
    assert step.event == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "ns"},
        "involvedObject": {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "namespace": "ns",
            "name": "web",
            "uid": "uid-web",
        },
        "type": "Normal",
        "reason": "Started",
        "message": "it runs",
        "source": {"component": "livevirt", "host": "host-1"},
        "reportingComponent": "livevirt",
        "reportingInstance": "host-1",
        "firstTimestamp": "2026-06-01T12:00:00Z",
        "lastTimestamp": "2026-06-01T12:00:00Z",
        "count": 1,
    }


def test_a_repetition_raises_the_count_of_the_event() -> None:
    folding = Folding("livevirt")
    first = folding.fold(said("it runs"), NOON)
    folding.fold(said("it runs"), after(minutes=9))
    third = folding.fold(said("it runs"), after(minutes=18))
    assert isinstance(first, Create)
    assert isinstance(third, Repeat)
    assert third.name == first.event["metadata"]["name"]
    assert third.patch == {
        "count": 3,
        "lastTimestamp": "2026-06-01T12:18:00Z",
        "message": "it runs",
    }
    assert third.event["firstTimestamp"] == "2026-06-01T12:00:00Z"


DIFFERENT = {
    "another message": said("it stopped"),
    "another reason": said("it runs", reason="Resumed"),
    "another object": said("it runs", vm="other"),
    "another type": Occurrence(reference(a_vm()), "Warning", "Started", "it runs"),
}


@pytest.mark.parametrize("occurrence", DIFFERENT.values(), ids=DIFFERENT)
def test_what_differs_is_an_event_of_its_own(occurrence: Occurrence) -> None:
    folding = Folding("livevirt")
    one, other = folding.fold(said("it runs"), NOON), folding.fold(occurrence, NOON)
    assert isinstance(one, Create)
    assert isinstance(other, Create)
    assert one.event["metadata"]["name"] != other.event["metadata"]["name"]


def test_after_ten_quiet_minutes_it_is_a_new_event() -> None:
    folding = Folding("livevirt")
    folding.fold(said("it runs"), NOON)
    assert isinstance(folding.fold(said("it runs"), after(minutes=10, seconds=1)), Create)


def test_many_messages_of_one_reason_become_one_event() -> None:
    folding = Folding("livevirt")
    steps = [folding.fold(said(f"try {n}"), NOON) for n in range(SIMILAR + 3)]
    assert [type(step) for step in steps] == [Create] * (SIMILAR + 1) + [Repeat] * 2
    last = steps[-1]
    assert isinstance(last, Repeat)
    assert last.patch["message"] == f"{COMBINED}try {SIMILAR + 2}"
    assert last.patch["count"] == 3
    known = folding.fold(said("try 0"), NOON)
    assert isinstance(known, Repeat)
    assert known.patch["message"] == "try 0"  # those told before stay themselves


def test_an_object_that_floods_is_cut_short_and_others_are_not() -> None:
    folding = Folding("livevirt")
    steps = [folding.fold(said("it runs"), NOON) for _ in range(BURST + 5)]
    assert [step is None for step in steps] == [False] * BURST + [True] * 5
    assert folding.fold(said("it runs", vm="other"), NOON) is not None
    assert folding.fold(said("it runs"), after(seconds=9)) is None
    assert folding.fold(said("it runs"), after(seconds=10)) is not None
    assert folding.fold(said("it runs"), after(seconds=10)) is None


def test_names_stay_names_however_long_the_objects_is() -> None:
    long = "a" * 235 + "." + "b" * 17
    step = Folding("livevirt").fold(said("it runs", vm=long), NOON)
    assert isinstance(step, Create)
    name = step.event["metadata"]["name"]
    assert len(name) <= 253
    assert ".." not in name


def test_an_event_of_a_cluster_object_is_in_the_default_namespace() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u"}}
    occurrence = Occurrence(reference(node), "Normal", "Ready", "it is")
    step = Folding("livevirt").fold(occurrence, NOON)
    assert isinstance(step, Create)
    assert step.event["metadata"]["namespace"] == "default"
    assert "namespace" not in step.event["involvedObject"]


# ---------------------------------------------------------------- recorder


def a_recorder(server: MemoryHandler) -> Recorder:
    return Recorder(LocalClient(server, User("test")), "livevirt", lambda: NOON)


RUNS = conditions.human_readable("it runs")


def written(server: MemoryHandler) -> list[tuple[str, int]]:
    return [(obj["message"], obj["count"]) for obj in server.objects.values()]


async def test_events_are_written_while_it_runs() -> None:
    server = MemoryHandler()
    recorder = a_recorder(server)
    task = asyncio.create_task(recorder.run())
    recorder.event(a_vm(), "Normal", "Started", "it runs")
    await until(lambda: written(server) == [(RUNS, 1)])
    recorder.event(a_vm(), "Normal", "Started", "it runs")
    await until(lambda: written(server) == [(RUNS, 2)])
    await recorder.close()
    async with asyncio.timeout(5):
        await task


async def test_close_writes_what_was_told_even_if_nothing_ran() -> None:
    server = MemoryHandler()
    recorder = a_recorder(server)
    recorder.event(a_vm(), "Normal", "Started", "it runs")
    await recorder.close()
    assert written(server) == [(RUNS, 1)]
    recorder.event(a_vm(), "Normal", "Stopped", "too late")
    await recorder.close()
    assert len(server.objects) == 1


async def test_given_an_idle_recorder_when_it_is_closed_then_run_returns() -> None:
    recorder = a_recorder(MemoryHandler())
    task = asyncio.create_task(recorder.run())
    await settle()
    await recorder.close()
    async with asyncio.timeout(5):
        await task


async def test_given_a_server_that_does_not_answer_then_telling_neither_waits_nor_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "BACKLOG", 5)
    server = MemoryHandler()
    server.hold = asyncio.Event()
    recorder = a_recorder(server)
    task = asyncio.create_task(recorder.run())
    recorder.event(a_vm(), "Normal", "Started", "first")
    await until(lambda: server.requests)
    for number in range(100):
        recorder.event(a_vm(), "Normal", "Started", f"number {number}")
    server.hold.set()
    await recorder.close()
    await task
    assert [message for message, _ in written(server)] == [
        conditions.human_readable(each)
        for each in ("first", *(f"number {number}" for number in range(5)))
    ]


@pytest.mark.parametrize("error", [Forbidden("no"), UNREACHABLE, RuntimeError("a bug")])
async def test_an_event_that_could_not_be_written_is_written_when_it_happens_again(
    error: Exception,
) -> None:
    server = MemoryHandler()
    recorder = a_recorder(server)
    server.refuse = lambda request: error
    task = asyncio.create_task(recorder.run())
    recorder.event(a_vm(), "Normal", "Started", "it runs")
    await until(lambda: server.requests)
    server.refuse = lambda request: None
    recorder.event(a_vm(), "Normal", "Started", "it runs")
    await recorder.close()
    await task
    assert written(server) == [(RUNS, 1)]


async def test_given_the_event_expired_when_it_happens_again_then_it_is_written_anew() -> None:
    server = MemoryHandler()
    recorder = a_recorder(server)
    task = asyncio.create_task(recorder.run())
    recorder.event(a_vm(), "Normal", "Started", "it runs")
    await until(lambda: server.objects)
    server.objects.clear()
    recorder.event(a_vm(), "Normal", "Started", "it runs")
    await until(lambda: written(server) == [(RUNS, 2)])
    recorder.event(a_vm(), "Normal", "Started", "it runs")
    await recorder.close()
    await task
    assert written(server) == [(RUNS, 3)]
