"""JSONPath: what printer columns reach in an object."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.jsonpath import find

VM: dict[str, Any] = {
    "metadata": {"annotations": {"livevirt.io/note": "hi", "plain": "there"}},
    "status": {
        "conditions": [
            {"type": "Paused", "status": "False"},
            {"type": "Ready", "status": "True", "weight": 3},
            {"type": "Ready", "status": "Later"},
        ],
        "interfaces": [{"ip": "10.0.2.2"}, {"ip": "10.0.2.3"}],
        "count": 0,
    },
}

PATHS: dict[str, tuple[str, list[Any]]] = {
    "a field": (".status.count", [0]),
    "a missing field": (".status.phase", []),
    "a field of a list": (".status.interfaces.ip", []),
    "the first element": (".status.interfaces[0].ip", ["10.0.2.2"]),
    "the last element": (".status.interfaces[-1].ip", ["10.0.2.3"]),
    "an element that is not there": (".status.interfaces[7].ip", []),
    "every element": (".status.interfaces[*].ip", ["10.0.2.2", "10.0.2.3"]),
    "every value of a map": (".metadata.annotations.*", ["hi", "there"]),
    "a filter by text": (".status.conditions[?(@.type=='Paused')].status", ["False"]),
    "a filter with spaces and double quotes": (
        '.status.conditions[?( @.type == "Ready" )].status',
        ["True", "Later"],
    ),
    "a filter by number": (".status.conditions[?(@.weight==3)].type", ["Ready"]),
    "a filter by what it is not": (".status.conditions[?(@.type!='Ready')].type", ["Paused"]),
    "a filter by presence": (".status.conditions[?(@.weight)].status", ["True"]),
    "a filter that nothing meets": (".status.conditions[?(@.type=='Agent')].status", []),
    "a name with a dot, escaped": (r".metadata.annotations.livevirt\.io/note", ["hi"]),
    "a name with a dot, quoted": (".metadata.annotations['livevirt.io/note']", ["hi"]),
    "braces and a root": ("{$.status.count}", [0]),
    "nothing but the root": ("$", [VM]),
}


@pytest.mark.parametrize(("path", "found"), PATHS.values(), ids=PATHS)
def test_a_path_finds(path: str, found: list[Any]) -> None:
    assert find(path, VM) == found


@pytest.mark.parametrize("path", ["status", ".a[", ".a[x]", ".a..b", ".a[?(@.b==x y)]"])
def test_a_path_nobody_can_read_is_an_error(path: str) -> None:
    with pytest.raises(ValueError, match="JSONPath"):
        find(path, {"a": [{"b": 1}]})


names = st.text("abcxyz-/", min_size=1, max_size=5)


@given(st.lists(names, max_size=5), st.integers())
def test_given_any_nesting_when_its_path_is_walked_then_the_leaf_is_found(
    keys: list[str], leaf: int
) -> None:
    value: Any = leaf
    for key in reversed(keys):
        value = {key: value}
    assert find("".join(f".{key}" for key in keys), value) == [leaf]
    assert find("".join(f"['{key}']" for key in keys), value) == [leaf]
