"""A merge patch does what RFC 7386 says, and never touches what it was given."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.errors import BadRequest
from livevirt.kube.server.patches import apply_merge_patch

# The examples of RFC 7386, appendix A, whose target and patch are objects.
EXAMPLES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]

scalars = st.sampled_from([True, False, 0, 1, 2, "", "x", "y"])
keys = st.sampled_from("abcd")
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(keys, values, max_size=4)
patches = st.dictionaries(
    keys, st.none() | values | st.dictionaries(keys, st.none() | values, max_size=3), max_size=4
)


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The merge patch from one object to another; neither holds null."""
    patch: dict[str, Any] = {key: None for key in old.keys() - new.keys()}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            patch[key] = difference(before, value)
        elif key not in old or before != value or type(before) is not type(value):
            patch[key] = value
    return patch


@pytest.mark.parametrize(("target", "patch", "expected"), EXAMPLES)
def test_examples_of_the_rfc(
    target: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert apply_merge_patch(target, patch) == expected


@pytest.mark.parametrize("patch", [None, [], "x", 1])
def test_given_no_object_when_applied_then_it_is_a_bad_request(patch: Any) -> None:
    with pytest.raises(BadRequest):
        apply_merge_patch({}, patch)


def test_given_a_patch_of_one_branch_when_applied_then_the_other_is_shared() -> None:
    target = {"metadata": {"labels": {"a": "1"}}, "spec": {"deep": [1]}}
    patched = apply_merge_patch(target, {"metadata": {"labels": {"b": "2"}}})
    assert patched["spec"] is target["spec"]
    assert target["metadata"] == {"labels": {"a": "1"}}


def test_given_a_patch_deeper_than_the_stack_when_applied_then_it_is_a_bad_request() -> None:
    patch: dict[str, Any] = {}
    for _ in range(5000):
        patch = {"a": patch}
    with pytest.raises(BadRequest, match="deep"):
        apply_merge_patch({}, patch)


@given(objects, objects)
def test_given_two_objects_when_their_difference_is_applied_then_one_becomes_the_other(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert apply_merge_patch(old, difference(old, new)) == new


@given(objects, patches)
def test_given_any_patch_when_applied_twice_then_it_is_as_once_and_the_input_stays(
    target: dict[str, Any], patch: dict[str, Any]
) -> None:
    before = copy.deepcopy((target, patch))
    once = apply_merge_patch(target, patch)
    assert apply_merge_patch(once, patch) == once
    assert (target, patch) == before


@given(objects)
def test_given_the_empty_patch_when_applied_then_nothing_changes(target: dict[str, Any]) -> None:
    assert apply_merge_patch(target, {}) == target
