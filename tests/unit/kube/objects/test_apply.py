"""How single values compare, merge and are checked under server-side apply."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects import apply, core, merge_types
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

POD = merge_types.of_kind(core.POD, "v1")
VM = merge_types.of_kind(kinds.VM, "v1")


def finalizers(names: str) -> Object:
    return {"metadata": {"finalizers": list(names)}}


MERGED = {
    "given nothing shared, then live comes first": ("ab", "cd", "abcd"),
    "given another order, then the configuration's": ("ab", "ba", "ba"),
    "given a new one between, then what live has there comes first": ("axb", "ayb", "axyb"),
    "given items on both sides of a shared one, then each stays on its side": (
        "xay", "uav", "xuayv",
    ),
    "given an order that contradicts live's": ("axbyc", "ca", "xbyca"),
}  # fmt: skip


@pytest.mark.parametrize(("live", "config", "merged"), MERGED.values(), ids=MERGED)
def test_merged_lists(live: str, config: str, merged: str) -> None:
    found = apply.merge(POD, finalizers(live), finalizers(config))
    assert "".join(found["metadata"]["finalizers"]) == merged


PROBLEMS: dict[str, tuple[Any, list[str]]] = {
    "unknown field": ({"spec": {"x": 1}}, [".spec.x: field not declared in schema"]),
    "text for a map": (
        {"metadata": {"labels": "x"}},
        ['.metadata.labels: expected map, got &{"x"}'],
    ),
    "number for a text": ({"spec": {"hostname": 1}}, [".spec.hostname: expected string, got 1"]),
    "duplicate": (
        {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}},
        ['.spec.containers: duplicate entries for key [name="a"]'],
    ),
    "null": ({"spec": None}, []),
}


@pytest.mark.parametrize(("config", "found"), PROBLEMS.values(), ids=PROBLEMS)
def test_problems_of_a_configuration(config: Object, found: list[str]) -> None:
    assert apply.problems(POD, config) == found


def test_a_key_without_default_is_required() -> None:
    spec = {"template": {"spec": {"resourceClaims": [{}]}}}
    (found,) = apply.problems(VM, {"spec": spec})
    assert found.startswith(".spec.template.spec.resourceClaims: element 0:")


def test_open_metadata_takes_any_field() -> None:
    assert apply.problems(VM, {"spec": {"template": {"metadata": {"x": [1]}}}}) == []


def test_duplicates_of_a_stored_list_are_compared_as_one() -> None:
    twice = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "a", "image": "2"}]}}
    once = {"spec": {"containers": [{"name": "a", "image": "1"}]}}
    name = 'k:{"name":"a"}'
    change = apply.compare(POD, once, twice)
    assert change.changed == {"f:spec": {"f:containers": {name: {}}}}
    change = apply.compare(POD, twice, once)
    assert change.removed == {"f:spec": {"f:containers": {name: {}}}}
    assert "f:image" in change.changed["f:spec"]["f:containers"][name]
