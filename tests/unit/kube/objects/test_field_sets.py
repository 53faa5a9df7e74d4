"""Sets of fields, compared with sets of paths."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects import field_sets
from livevirt.kube.objects.field_sets import FieldSet, Path

names = st.sampled_from(["f:a", "f:b", 'k:{"name":"c"}', 'v:"d"'])
path_sets = st.sets(st.lists(names, min_size=1, max_size=3).map(tuple), max_size=6)


def a_set(paths: set[Path]) -> FieldSet:
    """Return the set of some paths."""
    found: FieldSet = {}
    for path in paths:
        one: FieldSet = {}
        for name in reversed(path):
            one = {name: one}
        found = field_sets.union(found, one)
    return found


@given(path_sets)
def test_a_set_holds_the_paths_it_was_made_of(paths: set[Path]) -> None:
    assert set(field_sets.paths(a_set(paths))) == paths
    assert field_sets.is_set(a_set(paths))


@given(path_sets, path_sets)
def test_operations_are_those_of_sets(one: set[Path], other: set[Path]) -> None:
    left, right = a_set(one), a_set(other)
    assert set(field_sets.paths(field_sets.union(left, right))) == one | other
    assert set(field_sets.paths(field_sets.difference(left, right))) == one - other
    assert set(field_sets.paths(field_sets.intersection(left, right))) == one & other
    assert field_sets.difference(left, right) == a_set(one - other)  # one form for each set


@given(path_sets, path_sets)
def test_trees_are_taken_out_with_everything_below(one: set[Path], roots: set[Path]) -> None:
    left = {path for path in one if not any(path[: len(root)] == root for root in roots)}
    assert field_sets.without_trees(a_set(one), a_set(roots)) == a_set(left)


def test_paths_read_like_those_of_kube_apiserver() -> None:
    fields = {
        "f:spec": {
            "f:containers": {'k:{"name":"c"}': {"f:image": {}}},
            "f:ports": {'k:{"port":80,"protocol":"TCP"}': {}},
            "f:tolerations": {},
        },
        "f:metadata": {"f:finalizers": {'v:"x/y"': {}}},
    }
    assert [field_sets.path_text(path) for path in field_sets.paths(fields)] == [
        '.metadata.finalizers[="x/y"]',
        ".spec.tolerations",
        '.spec.containers[name="c"].image',
        '.spec.ports[port=80,protocol="TCP"]',
    ]


def test_other_json_is_no_set() -> None:
    for value in (None, [], {"a": {}}, {"f:a": 1}, {"f:a": {".": {"f:b": {}}}}, {"f:a": {"b": {}}}):
        assert not field_sets.is_set(value)
