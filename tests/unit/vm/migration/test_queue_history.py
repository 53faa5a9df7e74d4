from __future__ import annotations

from datetime import timedelta

import pytest

from livevirt.vm.migration import queue
from livevirt.vm.migration.snapshot import Migration

from .migration_builders import NOON, later

LAST = later(minutes=-1)


def past(number: int, phase: str = "Failed", finished: int = -60, **rest: bool) -> Migration:
    """The older the smaller the number."""
    return Migration(
        f"m{number}", f"u{number}", phase, later(hours=-1, seconds=number),
        later(seconds=finished), **rest,
    )  # fmt: skip


WAITS = {
    "given no failure, then none": ([], 0),
    "given a failure long ago, then none": ([past(1, finished=-21)], 0),
    "given a failure just now, then 20 s": ([past(1, finished=0)], 20),
    "given a second, then 40 s from the last": ([past(1), past(2, finished=-10)], 30),
    "given five, then 320 s": ([past(n, finished=0) for n in range(1, 6)], 320),
    "given a success in between, then it begins anew": (
        [past(1), past(2, "Succeeded"), past(3, finished=0)], 20,
    ),
    "given a success at last, then none": ([past(1, finished=0), past(2, "Succeeded")], 0),
    "given one that goes on, then it does not count": ([past(1, "Running")], 0),
}  # fmt: skip


@pytest.mark.parametrize(("others", "seconds"), WAITS.values(), ids=WAITS)
def test_back_off(others: list[Migration], seconds: int) -> None:
    mine = Migration("mine", "me", automatic=True)
    wait = timedelta(seconds=seconds)
    assert queue.back_off(mine, [*others, mine], NOON) == wait
    assert queue.back_off(Migration("mine", "me"), others, NOON) == timedelta(0)


def test_the_newest_five_that_ended_are_kept() -> None:
    found = queue.expired([past(n) for n in range(8)] + [past(9, "Running")])
    assert [each.name for each in found] == ["m2", "m1", "m0"]
    assert queue.expired([past(n) for n in range(5)]) == []


def test_what_is_being_deleted_is_not_deleted_again() -> None:
    assert queue.expired([past(n, deleting=n == 0) for n in range(6)]) == []


def test_migrations_outlive_their_instance_for_an_hour() -> None:
    assert queue.time_left(past(1, finished=-60), NOON) == timedelta(minutes=59)
    assert queue.time_left(past(1, finished=-3600), NOON) == timedelta(0)
