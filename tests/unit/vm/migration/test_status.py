from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.conditions import human_readable
from livevirt.kube.server import patches
from livevirt.vm.migration import status

from .migration_builders import NOON, READY, SOURCE

VALUES = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_nothing_of_the_old_state_is_left(old: Any, new: Any) -> None:
    assert patches.apply_merge_patch(old, status.replacing(old, new)) == new


def test_the_handoff_names_both_sides() -> None:
    found = status.handed_over("m1", SOURCE, READY, {"progressTimeout": 1}, None)
    assert found == {
        "migrationUid": "m1", "sourceNode": "n1", "sourcePod": "source", "targetNode": "n2",
        "targetPod": "target", "mode": "PreCopy", "migrationConfiguration": {"progressTimeout": 1},
    }  # fmt: skip
    policy = {"metadata": {"name": "p"}}
    named = status.handed_over("m1", SOURCE, READY, {}, policy)
    assert named["migrationPolicyName"] == "p"


def test_a_failure_says_when_and_whether_it_was_asked_for() -> None:
    assert status.failed("why", NOON, aborted=True) == {
        "failed": True, "failureReason": human_readable("why"),
        "endTimestamp": "2030-01-01T12:00:00Z",
        "abortStatus": "Succeeded",
    }  # fmt: skip
    assert "abortStatus" not in status.failed("why", NOON)
