"""JSON merge patches."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.merge_patch import apply, combined, difference

values = st.recursive(
    st.integers() | st.text(max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner),
    max_leaves=8,
)


@given(values, values)
def test_a_merge_patch_makes_one_into_the_other(old: Any, new: Any) -> None:
    assert apply(difference(old, new), old) == new


def test_nulls_of_a_patch_never_become_values() -> None:
    assert apply({"a": {"b": None, "c": 1}}, {}) == {"a": {"c": 1}}


def test_patches_of_different_fields_are_combined() -> None:
    assert combined({"a": {"b": 1}}, {"a": {"c": None}}, {"d": [2]}) == {
        "a": {"b": 1, "c": None}, "d": [2],
    }  # fmt: skip
