"""A client asks no more of its server than it may, and sends again only what is safe to send."""

from __future__ import annotations

import asyncio

import pytest

from livevirt.kube.client.limits import (
    COMPONENT,
    UNLIMITED,
    WAITS,
    Limits,
    RateLimiter,
    retry_after,
)

READ, WRITE = False, True


async def test_given_a_burst_then_the_rest_is_spread_in_order() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    limiter = RateLimiter(Limits(qps=10, burst=3), sleep)
    for _ in range(6):
        await limiter.wait()
    assert waits == pytest.approx([0.1, 0.2, 0.3], abs=0.05)


async def test_given_time_passes_then_requests_are_earned_up_to_the_burst() -> None:
    limiter = RateLimiter(Limits(qps=1000, burst=2))
    for _ in range(20):
        await limiter.wait()
    await asyncio.sleep(0.05)
    assert [await limiter.wait(), await limiter.wait()] == [0.0, 0.0]
    assert await limiter.wait() > 0


async def test_given_no_rate_then_nothing_waits() -> None:
    limiter = RateLimiter(UNLIMITED)
    assert {await limiter.wait() for _ in range(1000)} == {0.0}


RETRIES: dict[str, tuple[Limits, bool, int, str, int, tuple[float, float] | None]] = {
    "the server's own time, and a little more": (UNLIMITED, WRITE, 429, "3", 0, (3.0, 3.6)),
    "also for an error of the server": (UNLIMITED, WRITE, 500, "1", 0, (1.0, 1.2)),
    "but not for ever": (UNLIMITED, READ, 429, "3", WAITS, None),
    "nor for what is no overload": (UNLIMITED, READ, 409, "3", 0, None),
    "a command is not kept waiting": (UNLIMITED, READ, 503, "", 0, None),
    "a component waits": (COMPONENT, READ, 503, "", 0, (0.125, 0.25)),
    "longer each time": (COMPONENT, READ, 503, "", 3, (1.0, 2.0)),
    "until it has waited often enough": (COMPONENT, READ, 503, "", COMPONENT.retries, None),
    "a read is sent again after a gateway gave up": (COMPONENT, READ, 504, "", 0, (0.125, 0.25)),
    "a write is not: it may have been done": (COMPONENT, WRITE, 504, "", 0, None),
    "a write that was turned away is": (COMPONENT, WRITE, 429, "", 0, (0.125, 0.25)),
    "an internal error is not": (COMPONENT, READ, 500, "", 0, None),
}


@pytest.mark.parametrize(
    ("limits", "write", "code", "asked", "waits", "expected"), RETRIES.values(), ids=RETRIES
)
def test_retry_after(
    limits: Limits,
    write: bool,
    code: int,
    asked: str,
    waits: int,
    expected: tuple[float, float] | None,
) -> None:
    found = {retry_after(limits, write, code, asked, waits) for _ in range(50)}
    if expected is None:
        assert found == {None}
    else:
        assert all(each is not None and expected[0] <= each <= expected[1] for each in found)
        assert len(found) > 1, "without jitter all clients return at once"
