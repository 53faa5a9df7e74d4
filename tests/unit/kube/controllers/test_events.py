from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from livevirt.kube.controllers.events import KEEP, LONGEST, SHORTEST, Times, happened, next_sweep

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MADE = {"metadata": {"uid": "u", "creationTimestamp": "2026-01-01T08:00:00Z"}}

MOMENTS = {
    "given only its creation, then that": ({}, 8),
    "given a last time, then that": ({"lastTimestamp": "2026-01-01T10:00:00Z"}, 10),
    "given a time with microseconds, then that": (
        {"eventTime": "2026-01-01T09:00:00.000000Z", "lastTimestamp": None}, 9),
    "given a series, then the last of it": (
        {"eventTime": "2026-01-01T09:00:00.000000Z",
         "series": {"count": 2, "lastObservedTime": "2026-01-01T11:00:00.000000Z"}}, 11),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "hour"), MOMENTS.values(), ids=MOMENTS)
def test_when_an_event_last_happened(fields: dict[str, Any], hour: int) -> None:
    event = msgspec.json.decode(msgspec.json.encode(MADE | fields), type=Times)
    assert happened(event) == datetime(2026, 1, 1, hour, tzinfo=UTC)


def test_the_next_sweep_is_when_the_oldest_expires_within_limits() -> None:
    assert next_sweep(None, NOON) == LONGEST
    assert next_sweep(NOON - KEEP + timedelta(minutes=5), NOON) == timedelta(minutes=5)
    assert next_sweep(NOON - KEEP + timedelta(seconds=1), NOON) == SHORTEST
    assert next_sweep(NOON, NOON) == LONGEST
