from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from livevirt.node.migration.facts import Migration
from livevirt.node.migration.limits import (
    EXTRA_SECONDS,
    PREPARE_SECONDS,
    SourceTimer,
    TransferTimer,
    limits,
)
from livevirt.qemu.migration import Limits, Transfer

GIB = 1024**3
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_settings_become_limits() -> None:
    assert limits({}) == Limits()
    settings = {"bandwidthPerMigration": "64Mi", "allowAutoConverge": True, "maxDowntimeMs": 50}
    assert limits(settings) == Limits(64 << 20, auto_converge=True, downtime_ms=50)
    assert limits({"bandwidthPerMigration": "0"}) == Limits()


def test_a_transfer_has_time_by_the_size_of_the_guest() -> None:
    timer = TransferTimer({"completionTimeoutPerGiB": 10}, 0)
    sending = Transfer("active", total=2 * GIB, remaining=GIB)
    assert not timer.exceeded(sending, 20)
    assert timer.exceeded(sending, 20.1)


def test_a_transfer_must_make_progress() -> None:
    timer = TransferTimer({"progressTimeout": 5}, 0)
    assert not timer.exceeded(Transfer("active", total=100, remaining=100), 0)
    assert not timer.exceeded(Transfer("active", total=100, remaining=90), 4)
    assert not timer.exceeded(Transfer("active", total=100, remaining=95), 9)
    assert timer.exceeded(Transfer("active", total=100, remaining=90), 9.1)


def test_what_remains_counts_only_once_qemu_reports_it() -> None:
    """At first, in its state `setup`, it does not; that is not the end."""
    timer = TransferTimer({"progressTimeout": 5}, 0)
    assert not timer.exceeded(Transfer("setup"), 1)
    assert not timer.exceeded(Transfer("active", total=100, remaining=100), 4)
    assert not timer.exceeded(Transfer("active", total=100, remaining=90), 8)
    assert timer.exceeded(Transfer("active", total=100, remaining=90), 13.1)


def test_without_limits_a_transfer_may_take_for_ever() -> None:
    assert not TransferTimer({}, 0).exceeded(Transfer("active", remaining=1), 1e9)


MAY_STOP = {"allowWorkloadDisruption": True}


@pytest.mark.parametrize(
    ("settings", "now", "exceeded"),
    [
        ({}, 1e9, False),
        ({"completionTimeoutPerGiB": 10}, 20, False),
        ({"completionTimeoutPerGiB": 10}, 20.1, True),
        ({"completionTimeoutPerGiB": 10, **MAY_STOP}, 40, False),
        ({"completionTimeoutPerGiB": 10, **MAY_STOP}, 40.1, True),
        ({"progressTimeout": 5}, 8, False),  # QEMU answered at 3
        ({"progressTimeout": 5}, 8.1, True),
    ],
)
def test_a_migration_hangs_by_when_sending_began_and_qemu_last_answered(
    settings: dict[str, Any], now: float, exceeded: bool
) -> None:
    clock = 0.0
    timer = SourceTimer(2 * GIB, lambda: clock, lambda: NOON)
    migration = Migration("m", started=True, since=NOON, settings=settings)
    clock = 3.0
    sent_for = NOON + timedelta(seconds=3)
    timer._now = lambda: sent_for
    assert timer.overdue(Transfer("active", total=1, remaining=1), migration, stopped=False) == ""
    clock = now + EXTRA_SECONDS
    assert bool(timer.hangs(migration)) is exceeded


def test_a_target_that_does_not_listen_is_not_waited_for() -> None:
    clock = 0.0
    timer = SourceTimer(GIB, lambda: clock, lambda: NOON)
    clock = PREPARE_SECONDS
    assert not timer.unprepared()
    clock += 1
    assert timer.unprepared()
    assert not timer.hangs(Migration("m"))  # QEMU has some more time to answer
    clock += EXTRA_SECONDS
    assert timer.hangs(Migration("m"))
