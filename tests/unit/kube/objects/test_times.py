"""Times and durations: one spelling each, as Kubernetes and kubectl spell them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects import times
from livevirt.kube.objects.times import TimeError

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "times.json").read_text()
)["cases"]
NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def spelled(kind: str, given: Any) -> str:
    match kind:
        case "time":
            return times.normalise_time(given)
        case "micro":
            return times.normalise_micro_time(given)
        case "duration":
            return times.normalise_duration(given)
        case _:
            return times.human_duration(timedelta(milliseconds=given))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']} {case['given']}")
def test_times_are_read_written_and_refused_as_kubernetes_does(case: dict[str, Any]) -> None:
    try:
        answer = {"text": spelled(case["kind"], case["given"])}
    except TimeError as error:
        answer = {"error": str(error)}
    assert answer == {key: case[key] for key in case.keys() - {"kind", "given"}}


def test_a_time_is_written_in_utc_to_the_second() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 999999, timezone(timedelta(hours=2)))
    assert times.format_time(moment) == "2026-01-02T01:04:05Z"
    assert times.format_micro_time(moment) == "2026-01-02T01:04:05.999999Z"
    assert times.format_time(datetime(1, 1, 1, tzinfo=UTC)) == "0001-01-01T00:00:00Z"


def test_a_time_without_a_zone_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        times.format_time(datetime(2026, 1, 2))


def test_durations_are_written_as_go_writes_them() -> None:
    assert times.format_duration(timedelta(hours=1)) == "1h0m0s"
    assert times.format_duration(timedelta(minutes=1, milliseconds=30500)) == "1m30.5s"
    assert times.format_duration(-timedelta(microseconds=1500)) == "-1.5ms"
    assert times.parse_duration("-1.5h") == timedelta(hours=-1.5)
    assert times.parse_duration("999ns") == timedelta(0)


AGES = {
    "2026-01-02T11:59:55Z": "5s",
    "2026-01-02T11:56:40Z": "3m20s",
    "2026-01-02T09:00:00Z": "3h",
    "2025-12-31T09:00:00Z": "2d3h",
    "2024-11-28T12:00:00Z": "400d",
    "2023-12-24T12:00:00Z": "2y10d",
    "2026-01-02T12:00:01Z": "0s",
    "2026-01-02T12:00:02Z": "<invalid>",
    None: "<unknown>",
}


@pytest.mark.parametrize(("timestamp", "shown"), AGES.items())
def test_age(timestamp: str | None, shown: str) -> None:
    assert times.age(timestamp, NOON) == shown


moments = st.datetimes(
    min_value=datetime(2, 1, 1),
    max_value=datetime(9998, 1, 1),
    timezones=st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)


@given(moments)
def test_given_any_moment_when_written_and_read_then_it_is_the_same(moment: datetime) -> None:
    assert times.parse_micro_time(times.format_micro_time(moment)) == moment
    assert times.parse_time(moment.isoformat(timespec="microseconds")) == moment
    assert times.parse_time(times.format_time(moment)) == moment.astimezone(UTC).replace(
        microsecond=0
    )


@given(st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000)))
def test_given_any_duration_when_written_and_read_then_it_is_the_same(duration: timedelta) -> None:
    text = times.format_duration(duration)
    assert times.parse_duration(text) == duration
    assert times.normalise_duration(text) == text


@given(st.text("0123456789.hmsnu-+TZ:"))
def test_given_any_text_then_it_is_read_or_refused(text: str) -> None:
    for normalise in (times.normalise_time, times.normalise_micro_time, times.normalise_duration):
        try:
            once = normalise(text)
        except TimeError:
            continue
        assert normalise(once) == once
