"""Sets of fields as `fieldsV1` in managedFields writes them.

A set is a tree of path elements: `f:<name>` is a field or a key of a map, `k:<keys>` an item of a
list by its keys, `v:<value>` an item by its value and `i:<index>` an item by its position. A node
without children is a field in the set; one with children is in the set only if `.` is among them.
Sets are never changed: every operation returns a new one, which shares nodes with those it is
given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

FieldSet = dict[str, Any]
Path = tuple[str, ...]

SELF = "."
LEAF: FieldSet = {}  # a field in the set without children; shared, never changed
PREFIXES = ("f:", "k:", "v:", "i:")


def is_set(value: Any) -> bool:
    """Return whether a value from outside is a set of fields."""
    return isinstance(value, dict) and all(
        (name == SELF and inner == LEAF) or (name.startswith(PREFIXES) and is_set(inner))
        for name, inner in value.items()
    )


def node(member: bool, children: FieldSet) -> FieldSet | None:
    """Return a node of a set; None if nothing is in it."""
    if not children:
        return LEAF if member else None
    return {SELF: LEAF, **children} if member else children


def is_member(found: FieldSet) -> bool:
    """Return whether a node itself, not only something below it, is in its set."""
    return not found or SELF in found


def as_member(found: FieldSet) -> FieldSet:
    """Return a node that is itself in the set."""
    return found if is_member(found) else {SELF: LEAF, **found}


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the fields of either set."""
    if not one:
        return other
    found = dict(one)
    for name, theirs in other.items():
        ours = found.get(name)
        found[name] = theirs if ours is None else _joined(ours, theirs)
    return found


def _joined(ours: FieldSet, theirs: FieldSet) -> FieldSet:
    if not ours:
        return as_member(theirs)
    return union(ours, theirs) if theirs else as_member(ours)


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the fields of the first set that are not in the second."""
    return _combined(one, other, lambda ours, theirs: ours and not theirs, keep=True)


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the fields that are in both sets."""
    return _combined(one, other, lambda ours, theirs: ours and theirs, keep=False)


def _combined(
    one: FieldSet, other: FieldSet, rule: Callable[[bool, bool], bool], *, keep: bool
) -> FieldSet:
    """Combine two sets; `keep`: nodes that only the first one has stay."""
    found: FieldSet = {}
    for name, ours in one.items():
        if name == SELF:
            continue
        theirs = other.get(name)
        if theirs is None:
            if keep:
                found[name] = ours
            continue
        member = rule(is_member(ours), is_member(theirs))
        left = node(member, _combined(ours, theirs, rule, keep=keep))
        if left is not None:
            found[name] = left
    return found


def without_trees(one: FieldSet, roots: FieldSet) -> FieldSet:
    """Return a set without the fields of another one and everything below them."""
    found: FieldSet = {}
    for name, ours in one.items():
        if name == SELF:
            continue
        root = roots.get(name)
        if root is None:
            found[name] = ours
        elif not is_member(root):
            left = node(is_member(ours), without_trees(ours, root))
            if left is not None:
                found[name] = left
    return found


def paths(fields: FieldSet, above: Path = ()) -> Iterator[Path]:
    """Yield the path of every field, at each level the fields themselves before what is below."""
    names = sorted((name for name in fields if name != SELF), key=_rank)
    yield from ((*above, name) for name in names if is_member(fields[name]))
    for name in names:
        yield from paths(fields[name], (*above, name))


def _rank(name: str) -> tuple[int, str]:
    return PREFIXES.index(name[:2]), name[2:]


def path_text(path: Path) -> str:
    """Return a path as conflicts name it, such as `.spec.containers[name="web"].image`."""
    return "".join(map(_element_text, path))


def _element_text(name: str) -> str:
    rest = name[2:]
    match name[:2]:
        case "f:":
            return f".{rest}"
        case "k:":
            keys = json.loads(rest)
            shown = (f"{key}={json.dumps(value)}" for key, value in sorted(keys.items()))
            return f"[{','.join(shown)}]"
        case "v:":
            return f"[={rest}]"
        case _:
            return f"[{rest}]"
