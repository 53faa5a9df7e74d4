from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from livevirt.node import departure
from livevirt.node.departure import Departure
from livevirt.node.handover import Handovers
from livevirt.node.intent import Leaving
from livevirt.node.move import Move, Sent
from livevirt.node.pod_dir import PodDir
from livevirt.qemu.machine import Machine
from livevirt.qemu.migration import Undescribed

from .moving_qemu import MACHINE, Qmp, a_guest

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOCKET = "/run/other/guest.sock"


class Source:
    """One departure, and what is around it."""

    def __init__(self, folder: Path, qmp: Qmp, noted: Leaving | None = None) -> None:
        self.qmp, self.handovers, self.woken = qmp, Handovers(), 0
        self.folder = PodDir(folder / "nodes" / "n" / "pods", folder / "run", "uid")
        self.folder.create(None)
        if noted is not None:
            self.folder.note_departure(noted)
        self.departure = Departure(
            a_guest(qmp), self.folder, self.handovers, self.describe, lambda: None, lambda: NOON
        )
        self.cannot = ""

    async def describe(self) -> Machine:
        if self.cannot:
            raise Undescribed(self.cannot)
        return MACHINE

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(30):
            while True:
                if holds():
                    return
                await asyncio.sleep(0.01)

    async def stays(self, told: Sent) -> None:
        """Expect nothing else to be said, however long it takes."""
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert self.departure.told == told


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departure, "LOOK_SECONDS", 0.01)


def a_move(**facts: Any) -> Move:
    return Move("m", "source", **facts)


async def test_a_guest_is_offered_noted_and_sent_in_that_order(tmp_path: Path) -> None:
    source = Source(tmp_path, Qmp())
    source.departure.want(a_move())
    await source.until(lambda: source.handovers.offered("m"))
    await source.stays(Sent())
    source.handovers.listen("m", SOCKET)
    await source.until(lambda: source.departure.told == Sent(ready=True))
    assert "migrate" not in source.qmp.told
    source.departure.want(a_move(started=True))
    await source.until(lambda: "migrate" in source.qmp.told)
    assert source.folder.read_departure() == Leaving(uid="m")
    await source.stays(Sent(ready=True))
    assert source.qmp.told.count("migrate") == 1


async def test_a_guest_that_cannot_be_described_stays(tmp_path: Path) -> None:
    source = Source(tmp_path, Qmp())
    source.cannot = "a drive is on its way out"
    source.departure.want(a_move())
    await source.until(lambda: source.departure.told == Sent(failed=source.cannot))


@pytest.mark.parametrize("status", ["", "failed", "cancelled", "completed"])
async def test_given_a_note_and_no_transfer_then_it_came_to_nothing(
    tmp_path: Path, status: str
) -> None:
    """It runs: what QEMU calls completed is that the guest once came here."""
    source = Source(tmp_path, Qmp("running", status), Leaving(uid="m"))
    source.departure.want(a_move(started=True))
    await source.until(lambda: source.departure.told.failed)
    assert source.qmp.told == []


@pytest.mark.parametrize(("state", "status"), [("running", "active"), ("postmigrate", "completed")])
async def test_given_a_transfer_under_way_or_whole_then_it_is_left_alone(
    tmp_path: Path, state: str, status: str
) -> None:
    source = Source(tmp_path, Qmp(state, status), Leaving(uid="m"))
    source.departure.want(a_move(started=True))
    await source.stays(Sent())
    assert source.qmp.told == []


async def test_a_guest_that_was_sent_whole_goes_on_here_only_once_it_has_failed(
    tmp_path: Path,
) -> None:
    source = Source(tmp_path, Qmp("postmigrate", "completed"), Leaving(uid="m"))
    source.departure.want(a_move(started=True))
    await source.stays(Sent())
    source.departure.want(a_move(started=True, failed=True, ended=True))
    await source.until(lambda: source.departure.over)
    assert source.qmp.told == ["cont", "look"]
    assert source.folder.read_departure() is None


async def test_a_guest_that_has_arrived_is_left_as_it_is(tmp_path: Path) -> None:
    source = Source(tmp_path, Qmp("postmigrate", "completed"), Leaving(uid="m"))
    source.departure.want(a_move(started=True, ended=True))
    await source.until(lambda: source.departure.over)
    assert source.qmp.told == []


async def test_given_it_takes_too_long_then_it_is_to_be_called_off(tmp_path: Path) -> None:
    source = Source(tmp_path, Qmp("running", "active"), Leaving(uid="m"))
    source.departure.want(a_move(started=True, settings={"completionTimeoutPerGiB": 0.01}))
    await source.until(lambda: source.departure.told.late)
    assert source.qmp.told == []


@pytest.mark.parametrize("state", ["paused", "prelaunch", "io-error", "suspended"])
@pytest.mark.parametrize("limit", ["completionTimeoutPerGiB", "progressTimeout"])
async def test_given_a_guest_that_stands_still_takes_too_long_then_it_is_to_be_called_off(
    tmp_path: Path, state: str, limit: str
) -> None:
    """There is nothing to stop: it may be disturbed, and that would not help."""
    source = Source(tmp_path, Qmp(state, "active"), Leaving(uid="m", paused=True))
    settings = {limit: 0.01, "allowWorkloadDisruption": True}
    source.departure.want(a_move(started=True, settings=settings))
    await source.until(lambda: limit in source.departure.told.late)
    assert source.qmp.told == []
    assert source.folder.read_departure() == Leaving(uid="m", paused=True)


async def test_given_it_may_be_disturbed_then_the_guest_is_stopped_first_and_resumed_if_it_stays(
    tmp_path: Path,
) -> None:
    settings = {"completionTimeoutPerGiB": 0.01, "allowWorkloadDisruption": True}
    source = Source(tmp_path, Qmp("running", "active"), Leaving(uid="m"))
    source.departure.want(a_move(started=True, settings=settings))
    await source.until(lambda: source.qmp.run_state == "paused")
    assert source.folder.read_departure() == Leaving(uid="m", stopped=True)
    source.departure.want(a_move(started=True, settings=settings, failed=True, ended=True))
    await source.until(lambda: source.departure.over)
    assert source.qmp.run_state == "running"


async def test_given_nobody_waits_for_the_guest_then_it_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departure, "PREPARE_SECONDS", 0.05)
    source = Source(tmp_path, Qmp())
    source.departure.want(a_move())
    await source.until(lambda: source.departure.told.failed)
    assert "nobody waited" in source.departure.told.failed


async def test_time_counts_from_when_it_was_begun_not_from_when_a_server_came_to_it(
    tmp_path: Path,
) -> None:
    settings = {"completionTimeoutPerGiB": 60}
    source = Source(tmp_path, Qmp("running", "active"), Leaving(uid="m"))
    begun = a_move(started=True, settings=settings, since=NOON - timedelta(seconds=50))
    source.departure.want(begun)
    await source.stays(Sent())
    later = Source(tmp_path, Qmp("running", "active"), Leaving(uid="m"))
    later.departure.want(replace(begun, since=NOON - timedelta(seconds=61)))
    await later.until(lambda: later.departure.told.late)


# ---------------------------------------------------------------- QEMUs that hang


class Hung(Qmp):
    """Takes every command and never answers."""

    async def execute(self, command: str, arguments: dict[str, Any] | None = None) -> Any:
        await asyncio.Event().wait()


@pytest.fixture
def no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departure, "EXTRA_SECONDS", 0.05)


@pytest.mark.usefixtures("no_extra")
async def test_given_a_qemu_that_does_not_answer_then_waiting_for_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departure, "PREPARE_SECONDS", 0.05)
    source = Source(tmp_path, Hung())
    source.departure.want(a_move())
    await source.until(lambda: "nobody waited" in source.departure.told.late)


@pytest.mark.usefixtures("no_extra")
@pytest.mark.parametrize("limit", ["completionTimeoutPerGiB", "progressTimeout"])
@pytest.mark.parametrize("disturbed", [False, True])
async def test_given_a_qemu_that_does_not_tell_of_a_transfer_then_that_is_to_be_called_off(
    tmp_path: Path, limit: str, disturbed: bool
) -> None:
    source = Source(tmp_path, Hung(), Leaving(uid="m"))
    settings = {limit: 0.05, "allowWorkloadDisruption": disturbed}
    source.departure.want(a_move(started=True, settings=settings, since=NOON))
    await source.until(lambda: limit in source.departure.told.late)
    assert source.folder.read_departure() == Leaving(uid="m")


@pytest.mark.usefixtures("no_extra")
@pytest.mark.parametrize("limit", ["completionTimeoutPerGiB", "progressTimeout"])
async def test_given_a_guest_that_was_sent_whole_and_not_taken_in_then_it_is_to_be_called_off(
    tmp_path: Path, limit: str
) -> None:
    """It goes on here no sooner than the target says so."""
    source = Source(tmp_path, Qmp("postmigrate", "completed"), Leaving(uid="m"))
    source.departure.want(a_move(started=True, settings={limit: 0.05}, since=NOON))
    await source.until(lambda: limit in source.departure.told.late)
    await source.stays(source.departure.told)
    assert (source.qmp.told, source.qmp.run_state) == ([], "postmigrate")


async def test_a_guest_that_was_sent_whole_has_some_time_to_be_taken_in_whoever_comes_to_it(
    tmp_path: Path,
) -> None:
    source = Source(tmp_path, Qmp("postmigrate", "completed"), Leaving(uid="m"))
    limits = {"completionTimeoutPerGiB": 1, "progressTimeout": 1}
    long_ago = NOON - timedelta(hours=1)
    source.departure.want(a_move(started=True, settings=limits, since=long_ago))
    await source.stays(Sent())


@pytest.mark.usefixtures("no_extra")
async def test_given_a_guest_that_is_sent_within_its_limits_then_nothing_is_told(
    tmp_path: Path,
) -> None:
    source = Source(tmp_path, Qmp("running", "active"), Leaving(uid="m"))
    limits = {"completionTimeoutPerGiB": 60, "progressTimeout": 60}
    source.departure.want(a_move(started=True, settings=limits, since=NOON))
    await source.stays(Sent())


async def test_given_it_cannot_be_said_what_machine_it_needs_then_that_is_not_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departure, "PREPARE_SECONDS", 0.05)
    source = Source(tmp_path, Qmp())

    async def breaks() -> Machine:
        raise OSError("no such file")

    source.departure._describe = breaks
    source.departure.want(a_move())
    await source.until(lambda: source.departure.told.failed)


# ---------------------------------------------------------------- guests that stand still


@pytest.mark.parametrize("state", ["paused", "prelaunch", "io-error"])
async def test_a_guest_that_stood_still_before_does_so_if_it_stays(
    tmp_path: Path, state: str
) -> None:
    source = Source(tmp_path, Qmp(state))
    source.departure.want(a_move())
    await source.until(lambda: source.handovers.offered("m"))
    source.handovers.listen("m", SOCKET)
    source.departure.want(a_move(started=True))
    await source.until(lambda: "migrate" in source.qmp.told)
    assert source.folder.read_departure() == Leaving(uid="m", paused=True)
    source.qmp.run_state, source.qmp.status = "postmigrate", "completed"
    source.departure.want(a_move(started=True, failed=True, ended=True))
    await source.until(lambda: source.departure.over)
    assert "cont" not in source.qmp.told
    assert source.folder.read_departure() is None


async def test_a_guest_that_qemu_keeps_stopped_moves_again_only_after_it_was_resumed(
    tmp_path: Path,
) -> None:
    """QEMU would refuse it, and say of the earlier migration that it is completed."""
    source = Source(tmp_path, Qmp("postmigrate", "completed"))
    source.departure.want(a_move())
    await source.until(lambda: "unpaused" in source.departure.told.failed)
    assert source.handovers.offered("m") is None
    source.departure.want(a_move(failed=True, ended=True))
    await source.until(lambda: source.departure.over)
    assert source.qmp.told == ["look"]


async def test_given_a_guest_is_paused_after_it_was_offered_then_it_is_not_sent(
    tmp_path: Path,
) -> None:
    source = Source(tmp_path, Qmp())
    source.departure.want(a_move())
    await source.until(lambda: source.handovers.offered("m"))
    source.qmp.run_state = "paused"
    source.handovers.listen("m", SOCKET)
    source.departure.want(a_move(started=True))
    await source.until(lambda: "paused or resumed" in source.departure.told.failed)
    assert "migrate" not in source.qmp.told


# ---------------------------------------------------------------- ends that nobody saw


async def test_given_it_fails_with_the_last_byte_on_its_way_then_that_is_waited_for(
    tmp_path: Path,
) -> None:
    source = Source(tmp_path, Qmp("finish-migrate", "device"), Leaving(uid="m"))
    source.departure.want(a_move(started=True, failed=True, ended=True))
    await source.stays(Sent())
    assert (source.departure.over, source.folder.read_departure()) == (False, Leaving(uid="m"))
    source.qmp.run_state, source.qmp.status = "postmigrate", "completed"
    await source.until(lambda: source.departure.over)
    assert source.qmp.run_state == "running"


async def test_given_nobody_saw_a_migration_fail_then_the_next_one_resumes_the_guest_first(
    tmp_path: Path,
) -> None:
    source = Source(tmp_path, Qmp("postmigrate", "completed"), Leaving(uid="earlier"))
    source.departure.want(a_move())
    await source.until(lambda: source.handovers.offered("m"))
    assert source.qmp.told == ["cont"]
    assert source.folder.read_departure() is None
