from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from livevirt.node.migration import limits
from livevirt.node.migration import source as source_module
from livevirt.node.migration.facts import Migration
from livevirt.node.migration.handover import Departure, Handovers, MigrationNotes
from livevirt.node.migration.source import SourceMigration
from livevirt.node.migration.status import SourceReport
from livevirt.qemu.machine import Machine
from livevirt.qemu.migration import Undescribed

from ..moving_qemu import MACHINE, Qmp, a_guest

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOCKET = "/run/other/guest.sock"


class Source:
    """The source of one migration, and what is around it."""

    def __init__(self, folder: Path, qmp: Qmp, noted: Departure | None = None) -> None:
        self.qmp, self.handovers, self.woken = qmp, Handovers(), 0
        self.notes = MigrationNotes(folder)
        if noted is not None:
            self.notes.write_departure(noted)
        self.migration = SourceMigration(
            a_guest(qmp), self.notes, self.handovers, self.describe, lambda: None, lambda: NOON
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

    async def stays(self, report: SourceReport) -> None:
        """Expect nothing else to be said, however long it takes."""
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert self.migration.report == report


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "POLL_SECONDS", 0.01)


def a_move(**facts: Any) -> Migration:
    return Migration("m", source_pod="s", target_pod="t", **facts)


async def test_a_guest_is_offered_noted_and_sent_in_that_order(tmp_path: Path) -> None:
    source = Source(tmp_path, Qmp())
    source.migration.follow(a_move())
    await source.until(lambda: source.handovers.get("m").offer)
    await source.stays(SourceReport())
    source.handovers.listen("m", SOCKET)
    await source.until(lambda: source.migration.report == SourceReport(ready=True))
    assert "migrate" not in source.qmp.told
    source.migration.follow(a_move(started=True))
    await source.until(lambda: "migrate" in source.qmp.told)
    assert source.notes.read_departure() == Departure(uid="m")
    await source.stays(SourceReport(ready=True))
    assert source.qmp.told.count("migrate") == 1


async def test_a_guest_that_cannot_be_described_stays(tmp_path: Path) -> None:
    source = Source(tmp_path, Qmp())
    source.cannot = "a drive is on its way out"
    source.migration.follow(a_move())
    await source.until(lambda: source.migration.report == SourceReport(failed=source.cannot))


@pytest.mark.parametrize("status", ["", "failed", "cancelled", "completed"])
async def test_given_a_note_and_no_transfer_then_it_came_to_nothing(
    tmp_path: Path, status: str
) -> None:
    """It runs: what QEMU calls completed is that the guest once came here."""
    source = Source(tmp_path, Qmp("running", status), Departure(uid="m"))
    source.migration.follow(a_move(started=True))
    await source.until(lambda: source.migration.report.failed)
    assert source.qmp.told == []


@pytest.mark.parametrize(("state", "status"), [("running", "active"), ("postmigrate", "completed")])
async def test_given_a_transfer_under_way_or_whole_then_it_is_left_alone(
    tmp_path: Path, state: str, status: str
) -> None:
    source = Source(tmp_path, Qmp(state, status), Departure(uid="m"))
    source.migration.follow(a_move(started=True))
    await source.stays(SourceReport())
    assert source.qmp.told == []


async def test_a_guest_that_was_sent_whole_goes_on_here_only_once_it_has_failed(
    tmp_path: Path,
) -> None:
    source = Source(tmp_path, Qmp("postmigrate", "completed"), Departure(uid="m"))
    source.migration.follow(a_move(started=True))
    await source.stays(SourceReport())
    source.migration.follow(a_move(started=True, failed=True, ended=True))
    await source.until(lambda: source.migration.over)
    assert source.qmp.told == ["cont", "look"]
    assert source.notes.read_departure() is None


async def test_a_guest_that_has_arrived_is_left_as_it_is(tmp_path: Path) -> None:
    source = Source(tmp_path, Qmp("postmigrate", "completed"), Departure(uid="m"))
    source.handovers.listen("m", SOCKET)
    source.migration.follow(a_move(started=True, ended=True))
    await source.until(lambda: source.migration.over)
    assert source.qmp.told == []
    assert source.handovers.get("m").socket == ""  # nothing is kept of it


async def test_given_it_takes_too_long_then_it_is_to_be_called_off(tmp_path: Path) -> None:
    source = Source(tmp_path, Qmp("running", "active"), Departure(uid="m"))
    source.migration.follow(a_move(started=True, settings={"completionTimeoutPerGiB": 0.01}))
    await source.until(lambda: source.migration.report.overdue)
    assert source.qmp.told == []


@pytest.mark.parametrize("state", ["paused", "prelaunch", "io-error", "suspended"])
@pytest.mark.parametrize("limit", ["completionTimeoutPerGiB", "progressTimeout"])
async def test_given_a_guest_that_stands_still_takes_too_long_then_it_is_to_be_called_off(
    tmp_path: Path, state: str, limit: str
) -> None:
    """There is nothing to stop: it may be disturbed, and that would not help."""
    source = Source(tmp_path, Qmp(state, "active"), Departure(uid="m", paused=True))
    settings = {limit: 0.01, "allowWorkloadDisruption": True}
    source.migration.follow(a_move(started=True, settings=settings))
    await source.until(lambda: limit in source.migration.report.overdue)
    assert source.qmp.told == []
    assert source.notes.read_departure() == Departure(uid="m", paused=True)


async def test_given_it_may_be_disturbed_then_the_guest_is_stopped_first_and_resumed_if_it_stays(
    tmp_path: Path,
) -> None:
    settings = {"completionTimeoutPerGiB": 0.01, "allowWorkloadDisruption": True}
    source = Source(tmp_path, Qmp("running", "active"), Departure(uid="m"))
    source.migration.follow(a_move(started=True, settings=settings))
    await source.until(lambda: source.qmp.run_state == "paused")
    assert source.notes.read_departure() == Departure(uid="m", stopped=True)
    source.migration.follow(a_move(started=True, settings=settings, failed=True, ended=True))
    await source.until(lambda: source.migration.over)
    assert source.qmp.run_state == "running"


async def test_given_nobody_waits_for_the_guest_then_it_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PREPARE_SECONDS", 0.05)
    source = Source(tmp_path, Qmp())
    source.migration.follow(a_move())
    await source.until(lambda: source.migration.report.failed)
    assert "migrate" not in source.qmp.told


async def test_time_counts_from_when_it_was_begun_not_from_when_a_server_came_to_it(
    tmp_path: Path,
) -> None:
    settings = {"completionTimeoutPerGiB": 60}
    source = Source(tmp_path, Qmp("running", "active"), Departure(uid="m"))
    begun = a_move(started=True, settings=settings, since=NOON - timedelta(seconds=50))
    source.migration.follow(begun)
    await source.stays(SourceReport())
    later = Source(tmp_path, Qmp("running", "active"), Departure(uid="m"))
    later.migration.follow(replace(begun, since=NOON - timedelta(seconds=61)))
    await later.until(lambda: later.migration.report.overdue)


# ---------------------------------------------------------------- QEMUs that hang


class Hung(Qmp):
    """Takes every command and never answers."""

    async def execute(self, command: str, arguments: dict[str, Any] | None = None) -> Any:
        await asyncio.Event().wait()


@pytest.fixture
def no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXTRA_SECONDS", 0.05)


@pytest.mark.usefixtures("no_extra")
async def test_given_a_qemu_that_does_not_answer_then_waiting_for_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PREPARE_SECONDS", 0.05)
    source = Source(tmp_path, Hung())
    source.migration.follow(a_move())
    await source.until(lambda: source.migration.report.overdue)


@pytest.mark.usefixtures("no_extra")
@pytest.mark.parametrize("limit", ["completionTimeoutPerGiB", "progressTimeout"])
@pytest.mark.parametrize("disturbed", [False, True])
async def test_given_a_qemu_that_does_not_tell_of_a_transfer_then_that_is_to_be_called_off(
    tmp_path: Path, limit: str, disturbed: bool
) -> None:
    source = Source(tmp_path, Hung(), Departure(uid="m"))
    settings = {limit: 0.05, "allowWorkloadDisruption": disturbed}
    source.migration.follow(a_move(started=True, settings=settings, since=NOON))
    await source.until(lambda: limit in source.migration.report.overdue)
    assert source.notes.read_departure() == Departure(uid="m")


@pytest.mark.usefixtures("no_extra")
@pytest.mark.parametrize("limit", ["completionTimeoutPerGiB", "progressTimeout"])
async def test_given_a_guest_that_was_sent_whole_and_not_taken_in_then_it_is_to_be_called_off(
    tmp_path: Path, limit: str
) -> None:
    """It goes on here no sooner than the target says so."""
    source = Source(tmp_path, Qmp("postmigrate", "completed"), Departure(uid="m"))
    source.migration.follow(a_move(started=True, settings={limit: 0.05}, since=NOON))
    await source.until(lambda: limit in source.migration.report.overdue)
    await source.stays(source.migration.report)
    assert (source.qmp.told, source.qmp.run_state) == ([], "postmigrate")


async def test_a_guest_that_was_sent_whole_has_some_time_to_be_taken_in_whoever_comes_to_it(
    tmp_path: Path,
) -> None:
    source = Source(tmp_path, Qmp("postmigrate", "completed"), Departure(uid="m"))
    limits = {"completionTimeoutPerGiB": 1, "progressTimeout": 1}
    long_ago = NOON - timedelta(hours=1)
    source.migration.follow(a_move(started=True, settings=limits, since=long_ago))
    await source.stays(SourceReport())


@pytest.mark.usefixtures("no_extra")
async def test_given_a_guest_that_is_sent_within_its_limits_then_nothing_is_told(
    tmp_path: Path,
) -> None:
    source = Source(tmp_path, Qmp("running", "active"), Departure(uid="m"))
    limits = {"completionTimeoutPerGiB": 60, "progressTimeout": 60}
    source.migration.follow(a_move(started=True, settings=limits, since=NOON))
    await source.stays(SourceReport())


async def test_given_it_cannot_be_said_what_machine_it_needs_then_that_is_not_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PREPARE_SECONDS", 0.05)
    source = Source(tmp_path, Qmp())

    async def breaks() -> Machine:
        raise OSError("no such file")

    source.migration._describe = breaks
    source.migration.follow(a_move())
    await source.until(lambda: source.migration.report.failed)


# ---------------------------------------------------------------- guests that stand still


@pytest.mark.parametrize("state", ["paused", "prelaunch", "io-error"])
async def test_a_guest_that_stood_still_before_does_so_if_it_stays(
    tmp_path: Path, state: str
) -> None:
    source = Source(tmp_path, Qmp(state))
    source.migration.follow(a_move())
    await source.until(lambda: source.handovers.get("m").offer)
    source.handovers.listen("m", SOCKET)
    source.migration.follow(a_move(started=True))
    await source.until(lambda: "migrate" in source.qmp.told)
    assert source.notes.read_departure() == Departure(uid="m", paused=True)
    source.qmp.run_state, source.qmp.status = "postmigrate", "completed"
    source.migration.follow(a_move(started=True, failed=True, ended=True))
    await source.until(lambda: source.migration.over)
    assert "cont" not in source.qmp.told
    assert source.notes.read_departure() is None


async def test_a_guest_that_qemu_keeps_stopped_moves_again_only_after_it_was_resumed(
    tmp_path: Path,
) -> None:
    """QEMU would refuse it, and say of the earlier migration that it is completed."""
    source = Source(tmp_path, Qmp("postmigrate", "completed"))
    source.migration.follow(a_move())
    await source.until(lambda: source.migration.report.failed)
    assert source.handovers.get("m").offer is None
    source.migration.follow(a_move(failed=True, ended=True))
    await source.until(lambda: source.migration.over)
    assert source.qmp.told == ["look"]


async def test_given_a_guest_is_paused_after_it_was_offered_then_it_is_not_sent(
    tmp_path: Path,
) -> None:
    source = Source(tmp_path, Qmp())
    source.migration.follow(a_move())
    await source.until(lambda: source.handovers.get("m").offer)
    source.qmp.run_state = "paused"
    source.handovers.listen("m", SOCKET)
    source.migration.follow(a_move(started=True))
    await source.until(lambda: source.migration.report.failed)
    assert "migrate" not in source.qmp.told


# ---------------------------------------------------------------- ends that nobody saw


async def test_given_it_fails_with_the_last_byte_on_its_way_then_that_is_waited_for(
    tmp_path: Path,
) -> None:
    source = Source(tmp_path, Qmp("finish-migrate", "device"), Departure(uid="m"))
    source.migration.follow(a_move(started=True, failed=True, ended=True))
    await source.stays(SourceReport())
    assert (source.migration.over, source.notes.read_departure()) == (False, Departure(uid="m"))
    source.qmp.run_state, source.qmp.status = "postmigrate", "completed"
    await source.until(lambda: source.migration.over)
    assert source.qmp.run_state == "running"


async def test_given_nobody_saw_a_migration_fail_then_the_next_one_resumes_the_guest_first(
    tmp_path: Path,
) -> None:
    source = Source(tmp_path, Qmp("postmigrate", "completed"), Departure(uid="earlier"))
    source.migration.follow(a_move())
    await source.until(lambda: source.handovers.get("m").offer)
    assert source.qmp.told == ["cont"]
    assert source.notes.read_departure() is None
