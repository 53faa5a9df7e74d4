"""A JSON patch is done whole or not at all, as laxly as a kube-apiserver does it."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.errors import BadRequest, Invalid, RequestEntityTooLarge
from livevirt.kube.server import patches

STORED: dict[str, Any] = {
    "metadata": {"annotations": {"golden.test/x": "1", "n": "1"}, "finalizers": ["a", "c"]},
    "data": {"k": "1", "null": None, "yes": True, "one": 1},
}
Steps = list[dict[str, Any]]

DONE: dict[str, tuple[Steps, str, Any]] = {
    "add a member": ([{"op": "add", "path": "/data/new", "value": "n"}], "data.new", "n"),
    "add an object": (
        [{"op": "add", "path": "/metadata/labels", "value": {"z": "1"}}],
        "metadata.labels",
        {"z": "1"},
    ),
    "add into a list": (
        [
            {"op": "add", "path": "/metadata/finalizers/1", "value": "b"},
            {"op": "add", "path": "/metadata/finalizers/-", "value": "d"},
        ],
        "metadata.finalizers",
        ["a", "b", "c", "d"],
    ),
    "replace": ([{"op": "replace", "path": "/data/k", "value": "2"}], "data.k", "2"),
    "replace a member that is not there": (
        [{"op": "replace", "path": "/data/nope", "value": "x"}],
        "data.nope",
        "x",
    ),
    "replace in a list": (
        [{"op": "replace", "path": "/metadata/finalizers/0", "value": "z"}],
        "metadata.finalizers",
        ["z", "c"],
    ),
    "a slash in a key is ~1": (
        [{"op": "remove", "path": "/metadata/annotations/golden.test~1x"}],
        "metadata.annotations",
        {"n": "1"},
    ),
    "copy": ([{"op": "copy", "from": "/data/k", "path": "/data/k2"}], "data.k2", "1"),
    "move": (
        [
            {
                "op": "move",
                "from": "/metadata/annotations/n",
                "path": "/metadata/annotations/golden.test~1x",
            }
        ],
        "metadata.annotations",
        {"golden.test/x": "1"},
    ),
    "test that something is so": (
        [{"op": "test", "path": "/data/k", "value": "1"}],
        "data.k",
        "1",
    ),
    "test that something is not there": (
        [{"op": "test", "path": "/data/nope", "value": None}],
        "data.k",
        "1",
    ),
    "change what was just added": (
        [
            {"op": "add", "path": "/data/x", "value": {"y": [1]}},
            {"op": "add", "path": "/data/x/y/-", "value": 2},
        ],
        "data.x",
        {"y": [1, 2]},
    ),
}
REFUSED: dict[str, Steps] = {
    "a test that fails": [{"op": "test", "path": "/data/k", "value": "2"}],
    "a test of something that is not there": [{"op": "test", "path": "/data/no", "value": "2"}],
    "a test for null below nothing": [{"op": "test", "path": "/no/no", "value": None}],
    "a test without a value": [{"op": "test", "path": "/data/no"}],
    "true is not 1": [{"op": "test", "path": "/data/yes", "value": 1}],
    "1 is not true": [{"op": "test", "path": "/data/one", "value": True}],
    "remove what is not there": [{"op": "remove", "path": "/data/nope"}],
    "remove past the end": [{"op": "remove", "path": "/metadata/finalizers/9"}],
    "remove the marker of the end": [{"op": "remove", "path": "/metadata/finalizers/-"}],
    "add past the end": [{"op": "add", "path": "/metadata/finalizers/3", "value": "x"}],
    "add without a parent": [{"op": "add", "path": "/nope/nope", "value": "x"}],
    "add below a text": [{"op": "add", "path": "/data/k/x", "value": "x"}],
    "add without a value": [{"op": "add", "path": "/data/x"}],
    "replace without a parent": [{"op": "replace", "path": "/metadata/labels/x", "value": "x"}],
    "replace past the end": [{"op": "replace", "path": "/metadata/finalizers/2", "value": "x"}],
    "copy from nothing": [{"op": "copy", "from": "/data/nope", "path": "/data/x"}],
    "copy without from": [{"op": "copy", "path": "/data/x"}],
    "move from nothing": [{"op": "move", "from": "/data/nope", "path": "/data/x"}],
    "move into itself": [{"op": "move", "from": "/data", "path": "/data/x"}],
    "an unknown operation": [{"op": "frobnicate", "path": "/data/k"}],
    "no operation": [{"path": "/data/k"}],
    "no path": [{"op": "remove"}],
    "a path that is no text": [{"op": "remove", "path": 1}],
    "a path without a slash": [{"op": "remove", "path": "data"}],
    "replace everything": [{"op": "replace", "path": "", "value": {}}],
    "remove everything": [{"op": "remove", "path": ""}],
}


@pytest.mark.parametrize(("steps", "where", "expected"), DONE.values(), ids=DONE)
def test_done(steps: Steps, where: str, expected: Any) -> None:
    found: Any = patches.apply_json_patch(STORED, steps)
    for key in where.split("."):
        found = found[key]
    assert found == expected


@pytest.mark.parametrize("steps", REFUSED.values(), ids=REFUSED)
def test_given_a_step_that_cannot_be_done_then_it_is_invalid_and_nothing_changes(
    steps: Steps,
) -> None:
    before = copy.deepcopy(STORED)
    first = [{"op": "add", "path": "/data/x", "value": "1"}]
    with pytest.raises(Invalid):
        patches.apply_json_patch(STORED, first + steps)
    assert before == STORED


@pytest.mark.parametrize("patch", [None, {"op": "add"}, "x", ["x"], [None], [[]]])
def test_given_no_patch_when_applied_then_it_is_a_bad_request(patch: Any) -> None:
    with pytest.raises(BadRequest):
        patches.apply_json_patch(STORED, patch)


def test_given_a_failed_test_when_refused_then_the_message_tells_no_value() -> None:
    with pytest.raises(Invalid) as refused:
        patches.apply_json_patch(
            {"data": {"k": "old"}}, [{"op": "test", "path": "/data/k", "value": "new"}]
        )
    assert refused.value.message == "testing value /data/k failed"


def test_given_more_than_ten_thousand_operations_then_the_patch_is_too_large() -> None:
    step = {"op": "test", "path": "/data/k", "value": "1"}
    assert patches.apply_json_patch(STORED, [step] * 100) == STORED
    with pytest.raises(RequestEntityTooLarge, match="is 10000, got 10001"):
        patches.apply_json_patch(STORED, [step] * 10_001)


def test_given_copies_that_double_again_and_again_then_they_are_refused() -> None:
    stored = {"data": {"k": "x" * 100_000}}
    doubling = [{"op": "copy", "from": "/data", "path": f"/data/{at}"} for at in range(8)]
    assert patches.apply_json_patch(stored, doubling[:3])
    with pytest.raises(Invalid, match="copies"):
        patches.apply_json_patch(stored, doubling)


def test_given_a_later_step_into_an_added_value_then_the_patch_itself_stays() -> None:
    steps = [
        {"op": "add", "path": "/data/x", "value": {}},
        {"op": "add", "path": "/data/x/y", "value": 1},
    ]
    before = copy.deepcopy(steps)
    patches.apply_json_patch(STORED, steps)
    assert steps == before


parts = st.sampled_from(["", "/", "data", "k", "metadata", "finalizers", "0", "1", "9", "-", "~1"])
paths = st.lists(parts, max_size=4).map(lambda found: "".join(f"/{part}" for part in found))
steps = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x", None]),
        "path": paths | st.sampled_from([None, 1, "", "data", "/~2"]),
        "from": paths | st.none(),
        "value": st.none() | st.integers() | st.just({"a": [1]}),
    },
)


@given(st.lists(steps, max_size=5))
def test_given_any_patch_when_applied_then_it_works_or_is_invalid_and_the_input_stays(
    patch: Steps,
) -> None:
    before = copy.deepcopy((STORED, patch))
    with contextlib.suppress(Invalid):
        assert isinstance(patches.apply_json_patch(STORED, patch), dict)
    assert (STORED, patch) == before
