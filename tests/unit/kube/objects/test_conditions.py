"""Conditions: a change of status is dated once, and no change leaves the list alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.conditions import (
    condition,
    find,
    is_true,
    with_condition,
    without_condition,
)

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)


def ready(status: str, **more: Any) -> dict[str, Any]:
    return {"type": "Ready", "status": status, **more}


def test_given_no_conditions_when_one_is_set_then_it_is_dated_now() -> None:
    conditions = with_condition(None, ready("True"), NOON)
    assert conditions == [ready("True", lastTransitionTime="2026-01-02T12:00:00Z")]
    assert is_true(conditions, "Ready")


def test_given_the_same_status_when_the_message_changes_then_the_date_stays() -> None:
    before = with_condition([], ready("True", message="up"), NOON)
    after = with_condition(before, ready("True", message="still up"), LATER)
    assert after == [ready("True", message="still up", lastTransitionTime="2026-01-02T12:00:00Z")]
    assert before[0]["message"] == "up"


def test_given_another_status_when_set_then_it_is_dated_anew() -> None:
    before = with_condition([], ready("True"), NOON)
    after = with_condition(before, ready("False"), LATER)
    assert after == [ready("False", lastTransitionTime="2026-01-02T12:05:00Z")]
    assert not is_true(after, "Ready")


def test_given_a_time_of_its_own_when_the_status_changes_then_that_counts() -> None:
    own = "2026-01-01T00:00:00Z"
    before = with_condition([], ready("True"), NOON)
    assert with_condition(before, ready("False", lastTransitionTime=own), LATER) == [
        ready("False", lastTransitionTime=own)
    ]


def test_given_nothing_new_then_the_same_list_is_returned() -> None:
    before = with_condition([], ready("True"), NOON)
    assert with_condition(before, ready("True"), LATER) is before
    assert without_condition(before, "Paused") is before


def test_given_a_null_the_server_has_added_then_nothing_is_new() -> None:
    before = [{**with_condition([], ready("True"), NOON)[0], "lastProbeTime": None}]
    assert with_condition(before, ready("True"), LATER) is before


def test_a_condition_keeps_its_place_when_set_and_leaves_when_removed() -> None:
    before = [{"type": kind, "status": "False"} for kind in ("A", "Ready", "B")]
    after = with_condition(before, ready("True"), NOON)
    assert [each["type"] for each in after] == ["A", "Ready", "B"]
    assert [each["type"] for each in without_condition(after, "Ready")] == ["A", "B"]
    assert find(after, "Ready") == after[1]
    assert find(None, "Ready") is None


statuses = st.sampled_from(["True", "False", "Unknown"])


@given(st.lists(st.tuples(st.sampled_from("ABC"), statuses), max_size=12))
def test_given_any_history_then_each_date_is_that_of_the_last_change(
    history: list[tuple[str, str]],
) -> None:
    conditions: list[dict[str, Any]] = []
    changed: dict[str, tuple[str, str]] = {}
    for minute, (kind, status) in enumerate(history):
        conditions = with_condition(
            conditions, {"type": kind, "status": status}, NOON + timedelta(minutes=minute)
        )
        if changed.get(kind, ("", ""))[0] != status:
            changed[kind] = (status, f"2026-01-02T12:{minute:02}:00Z")
    assert {c["type"]: (c["status"], c["lastTransitionTime"]) for c in conditions} == changed


def test_a_condition_leaves_out_what_is_empty() -> None:
    assert condition("Ready", "True") == {"type": "Ready", "status": "True"}


@pytest.mark.wording
def test_a_condition_has_its_reason_and_message() -> None:
    assert condition("Ready", "False", "Broken", "no disk") == {
        "type": "Ready",
        "status": "False",
        "reason": "Broken",
        "message": "no disk",
    }
