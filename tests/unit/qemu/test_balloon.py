"""What the balloon takes from a guest: never more than leaves a margin of free memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.qemu.balloon import (
    Balloon,
    LowMemory,
    PollBalloon,
    SetBalloon,
    Statistics,
    Step,
    margin,
    statistics_of,
    steps,
)

MIB = 1024 * 1024
BOOT, NOW = 512 * MIB, 1000


def a_balloon(held: int, available: int | None, at: int = NOW) -> Balloon:
    found = Statistics(available * MIB, at) if available is not None else None
    return Balloon(held * MIB, found)


def held(size: int) -> SetBalloon:
    return SetBalloon(size * MIB, BOOT)


ROWS: dict[str, tuple[int, Balloon, list[Step]]] = {
    "given much is free, then all at once": (128, a_balloon(0, 400), [held(128)]),
    "given it holds that, then nothing": (128, a_balloon(128, 10), []),
    "given it holds more, then it gives back, whatever is free": (
        64, a_balloon(128, None), [held(64)]),
    "given it is tight, then a part of what is free": (256, a_balloon(0, 300), [held(124)]),
    "given less than the margin is free, then it gives back and reports": (
        256, a_balloon(128, 40),
        [held(118), PollBalloon(), LowMemory(40 * MIB, margin(384 * MIB))]),
    "given just the margin is free, then it reports": (
        256, a_balloon(0, 52), [PollBalloon(), LowMemory(52 * MIB, margin(BOOT))]),
    "given the report is old, then it asks": (256, a_balloon(0, 400, at=NOW - 5), [PollBalloon()]),
    "given nothing is reported, then it asks and takes nothing": (
        256, a_balloon(0, None), [PollBalloon(), LowMemory(None)]),
}  # fmt: skip


@pytest.mark.parametrize(("wanted", "balloon", "expected"), ROWS.values(), ids=ROWS)
def test_steps(wanted: int, balloon: Balloon, expected: list[Step]) -> None:
    assert list(steps(wanted * MIB, BOOT, balloon, NOW - 1)) == expected


@given(st.integers(0, 512), st.integers(0, 400), st.integers(0, 512))
def test_given_a_guest_uses_what_it_uses_when_plans_are_followed_then_the_margin_stays(
    used: int, wanted: int, start: int
) -> None:
    """A guest of 512Mi that uses so much; each step is followed in full."""
    start = min(start, 512 - used)
    has = start * MIB
    for _ in range(40):
        available = max(BOOT - used * MIB - has, 0)
        found = list(steps(wanted * MIB, BOOT, Balloon(has, Statistics(available, NOW))))
        taken = [step.held for step in found if isinstance(step, SetBalloon)]
        if taken:
            if taken[0] > has:
                assert available - (taken[0] - has) >= min(margin(BOOT - taken[0]), available) // 2
            has = taken[0]
        if not taken:
            break
    left = BOOT - used * MIB - has
    if has != wanted * MIB:
        assert any(isinstance(step, LowMemory) for step in found)
    elif has > start * MIB:
        assert left >= margin(BOOT) // 2


def test_statistics() -> None:
    unknown = 2**64 - 1
    assert statistics_of({"stats": {}, "last-update": 0}) is None
    stats = {"stat-available-memory": unknown, "stat-free-memory": 7}
    assert statistics_of({"stats": stats, "last-update": 5}) == Statistics(7, 5)
    assert statistics_of({"stats": stats | {"stat-available-memory": 9}, "last-update": 5}) == (
        Statistics(9, 5)
    )
    assert statistics_of({"stats": {"stat-free-memory": unknown}, "last-update": 5}) is None
