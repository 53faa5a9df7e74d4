"""Values under server-side apply: which fields they have, and how they compare and merge.

Every function walks a value with its `MergeType`. Field sets are those of `field_sets`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from livevirt.kube.objects.field_sets import (
    LEAF,
    SELF,
    FieldSet,
    as_member,
    difference,
    intersection,
    is_member,
    path_text,
    union,
)
from livevirt.kube.objects.merge_types import IGNORED, KEYED, MAP, SET, STRUCT, UNTYPED, MergeType
from livevirt.kube.objects.request import Object

_encode = msgspec.json.Encoder().encode
_ABSENT: Any = object()


class Comparison(NamedTuple):
    """How one object differs from another."""

    changed: FieldSet  # what was added or has another value
    removed: FieldSet


# ---------------------------------------------------------------- types of inner values


def _child(type_: MergeType, name: str) -> tuple[str, MergeType] | None:
    """Return path element and type of a field or key; None for one that is not declared."""
    found = type_.fields.get(name)
    if found is not None:
        return found
    return None if type_.element is None else (f"f:{name}", type_.element)


def _kind_of(type_: MergeType, value: Any) -> str:
    """Return how a value merges: a leaf, or by its fields, keys or values."""
    form = type_.form
    if form == UNTYPED:
        return MAP if isinstance(value, dict) else ""
    if form in (STRUCT, MAP):
        return form if isinstance(value, dict) else ""
    if form in (KEYED, SET):
        return form if isinstance(value, list) else ""
    return ""


def item_name(type_: MergeType, item: Any) -> str:
    """Return the path element of an item of a list that merges."""
    if type_.form == SET:
        return "v:" + _encode(item).decode()
    if not isinstance(item, dict):
        return "k:{}"
    keys = {key: item.get(key, default) for key, default in type_.keys}
    return "k:" + _encode(keys).decode()


def _by_name(type_: MergeType, items: list[Any]) -> dict[str, list[Any]]:
    """Return the items by path element; a stored list may hold several of the same."""
    found: dict[str, list[Any]] = {}
    for item in items:
        found.setdefault(item_name(type_, item), []).append(item)
    return found


# ---------------------------------------------------------------- field sets of values


def fields_of(type_: MergeType, value: Object) -> FieldSet:
    """Return the fields that applying an object owns: its leaves and the items of its lists."""
    return _owned(type_, value) or LEAF


def _owned(type_: MergeType, value: Any) -> FieldSet | None:
    kind = _kind_of(type_, value)
    if not kind:
        return None if type_.form in (KEYED, SET) else LEAF
    found: FieldSet = {}
    if kind in (KEYED, SET):
        for item in value:
            assert type_.element is not None
            inner = _owned(type_.element, item) if kind == KEYED else None
            found[item_name(type_, item)] = as_member(inner) if inner else LEAF
        return found or None
    for name, item in value.items():
        child = _child(type_, name)
        if child is None or child[1].form == IGNORED:
            continue
        empty = item is None or item == {}
        inner = LEAF if empty else _owned(child[1], item)
        if name not in type_.fields:
            inner = as_member(inner) if inner else LEAF
        if inner is not None:
            found[child[0]] = inner
    return found or None


def _whole(type_: MergeType, value: Any) -> FieldSet:
    """Return a value's node in the comparison with nothing: everything is in the set."""
    if type_.leaf or not value:
        return LEAF
    kind = _kind_of(type_, value)
    if not kind:
        return LEAF
    found: FieldSet = {SELF: LEAF}
    element = type_.element
    if kind == STRUCT:
        for name, item in value.items():
            child = _child(type_, name)
            if child is not None:
                found[child[0]] = LEAF if child[1].leaf else _whole(child[1], item)
    elif kind == MAP:
        assert element is not None
        for name, item in value.items():
            found[f"f:{name}"] = LEAF if element.leaf else _whole(element, item)
    elif kind == SET:
        for item in value:
            found[item_name(type_, item)] = LEAF
    else:
        assert element is not None
        for name, items in _by_name(type_, value).items():
            found[name] = _whole(element, items[0]) if len(items) == 1 else LEAF
    return found


# ---------------------------------------------------------------- comparing


def compare(type_: MergeType, old: Object, new: Object) -> Comparison:
    """Return how an object differs from an older one. The order of lists that merge is nothing."""
    changed, removed = _compare(type_, old, new)
    return Comparison(changed or LEAF, removed or LEAF)


_Nodes = tuple[FieldSet | None, FieldSet | None]


def _compare(type_: MergeType, old: Any, new: Any) -> _Nodes:
    if not old and not new:
        return LEAF, None
    kind = _kind_of(type_, new)
    if not kind or not _kind_of(type_, old):
        # Null is a value without anything in it: what is in the other one was added or removed.
        added, gone = _inside(type_, new), _inside(type_, old)
        both = old is not None and new is not None
        return LEAF if both or not (added or gone) else added, gone
    if kind in (KEYED, SET):
        return _compare_lists(type_, old, new)
    changed: FieldSet = {}
    removed: FieldSet = {}
    for name, item in new.items():
        was = old.get(name, _ABSENT)
        if was is item or was == item:
            continue
        child = _child(type_, name)
        if child is None or child[1].form == IGNORED:
            continue
        path, inner = child
        if was is _ABSENT:
            changed[path] = LEAF if inner.leaf else _whole(inner, item)
        elif inner.leaf:
            changed[path] = LEAF
        else:
            _note(path, _compare(inner, was, item), changed, removed)
    for name in old.keys() - new.keys():
        child = _child(type_, name)
        if child is not None and child[1].form != IGNORED:
            removed[child[0]] = _whole(child[1], old[name])
    return changed or None, removed or None


def _inside(type_: MergeType, value: Any) -> FieldSet | None:
    """Return the nodes of everything in a value; None if there is nothing."""
    return {name: node for name, node in _whole(type_, value).items() if name != SELF} or None


def _note(path: str, found: _Nodes, changed: FieldSet, removed: FieldSet) -> None:
    if found[0] is not None:
        changed[path] = found[0]
    if found[1] is not None:
        removed[path] = found[1]


def _compare_lists(type_: MergeType, old: list[Any], new: list[Any]) -> _Nodes:
    changed: FieldSet = {}
    removed: FieldSet = {}
    was, now = _by_name(type_, old), _by_name(type_, new)
    element = type_.element
    assert element is not None
    for name, items in now.items():
        before = was.get(name)
        if before == items:
            continue
        if len(items) > 1:
            if before is not None and len(before) == 1:
                removed[name] = _whole(element, before[0])
            changed[name] = LEAF
        elif before is None:
            changed[name] = _whole(element, items[0])
        elif len(before) > 1:
            changed[name], removed[name] = _whole(element, items[0]), LEAF
        else:
            _note(name, _compare(element, before[0], items[0]), changed, removed)
    for name in was.keys() - now.keys():
        items = was[name]
        removed[name] = _whole(element, items[0]) if len(items) == 1 else LEAF
    return changed or None, removed or None


# ---------------------------------------------------------------- merging and removing


def merge(type_: MergeType, live: Any, config: Any) -> Any:
    """Return a live value with an applied configuration merged into it."""
    kind = _kind_of(type_, config)
    if config is None and live and _kind_of(type_, live):
        return live
    if not kind or not live or not _kind_of(type_, live):
        return config
    element = type_.element
    if kind in (KEYED, SET):
        assert element is not None
        stored, applied = _by_name(type_, live), _by_name(type_, config)
        return [
            merge(element, stored[name][0], applied[name][0])
            if name in stored and name in applied and kind == KEYED
            else item
            for name, item in _in_order(type_, live, config, applied)
        ]
    merged = dict(live)
    for name, item in config.items():
        child = _child(type_, name)
        merged[name] = (
            merge(child[1], merged[name], item) if name in merged and child is not None else item
        )
    return merged


def _in_order(
    type_: MergeType, live: list[Any], config: list[Any], applied: dict[str, list[Any]]
) -> Iterator[tuple[str, Any]]:
    """Yield the items of both lists.

    Those of the configuration keep its order. Each of the others comes before the item, of those
    in both lists, that it stood before, and before what the configuration adds there.
    """
    left = [(item_name(type_, item), item) for item in live]
    shared = {name for name, _ in left} & applied.keys()
    ours = [(item_name(type_, item), item) for item in config]
    at = 0
    for number, (name, item) in enumerate(ours):
        ahead = next((n for n, _ in ours[number:] if n in shared), None)
        while at < len(left) and left[at][0] != ahead:
            if left[at][0] not in applied:
                yield left[at]
            at += 1
        if at < len(left) and left[at][0] == name:
            at += 1
        yield name, item
    yield from (each for each in left[at:] if each[0] not in applied)


def remove(type_: MergeType, value: Any, fields: FieldSet) -> Any:
    """Return a value without the fields of a set; one that nothing is left of becomes None."""
    kind = _kind_of(type_, value)
    if not kind:
        return None if not isinstance(value, str | int | float | bool) else value
    if kind in (KEYED, SET):
        assert type_.element is not None
        items = []
        for item in value:
            gone = fields.get(item_name(type_, item))
            if gone is None:
                items.append(item)
            elif not is_member(gone):
                items.append(remove(type_.element, item, gone))
        return items or None
    left = {}
    for name, item in value.items():
        child = _child(type_, name)
        gone = None if child is None else fields.get(child[0])
        if gone is None or child is None:
            left[name] = item
        elif not is_member(gone):
            left[name] = remove(child[1], item, gone)
    return left or None


# ---------------------------------------------------------------- what an applier drops


def with_parents(type_: MergeType, fields: FieldSet) -> FieldSet:
    """Return a set with the declared fields above each of its fields."""
    declared = {path: inner for path, inner in type_.fields.values()}
    found: FieldSet = {}
    for path, below in fields.items():
        inner = declared.get(path, type_.element)
        if inner is not None and below:
            below = with_parents(inner, below)
        if inner is not None and inner.kept:
            if below:
                found[path] = {name: node for name, node in below.items() if name != SELF}
        else:
            found[path] = as_member(below) if path in declared else below
    return found


def without_dropped(type_: MergeType, merged: Object, last: FieldSet) -> Object:
    """Return the merged object without the fields of an applier's last configuration."""
    return remove(type_, merged, with_parents(type_, last)) or {}


def with_owned(type_: MergeType, merged: Object, pruned: Object, owned: FieldSet) -> Object:
    """Return the pruned object with those fields of the merged one that have an owner."""
    kept = union(_all_fields(type_, pruned), with_parents(type_, owned))
    return remove(type_, merged, difference(_all_fields(type_, merged), kept)) or {}


def with_others(type_: MergeType, merged: Object, pruned: Object, last: FieldSet) -> Object:
    """Return the pruned object with the fields that its applier did not have before."""
    gone = difference(_all_fields(type_, merged), _all_fields(type_, pruned))
    return remove(type_, merged, intersection(gone, with_parents(type_, last))) or {}


def _all_fields(type_: MergeType, value: Object) -> FieldSet:
    return with_parents(type_, fields_of(type_, value))


# ---------------------------------------------------------------- checking


def problems(type_: MergeType, value: Any, path: str = "") -> list[str]:
    """List what in an applied configuration does not fit its schema."""
    if value is None or type_.form in (UNTYPED, IGNORED):
        return []
    expected = {STRUCT: "object", MAP: "object", KEYED: "array", SET: "array"}.get(
        type_.form, type_.json
    )
    if expected and not _fits(expected, value):
        return [f"{path}: expected {_NAMES.get(expected, expected)}, got {_shown(expected, value)}"]
    found: list[str] = []
    match type_.form:
        case "struct" | "map":
            for name, item in value.items():
                child = _child(type_, name)
                if child is None:
                    found.append(f"{path}.{name}: field not declared in schema")
                else:
                    found += problems(child[1], item, f"{path}.{name}")
        case "keyed" | "set":
            found += _list_problems(type_, value, path)
    return found


def _list_problems(type_: MergeType, value: list[Any], path: str) -> list[str]:
    found: list[str] = []
    seen: set[str] = set()
    assert type_.element is not None
    for at, item in enumerate(value):
        if why := _keyless(type_, item):
            found.append(f"{path}: element {at}: {why}")
            continue
        name = item_name(type_, item)
        if name in seen:
            found.append(f"{path}: duplicate entries for key {path_text((name,))}")
        seen.add(name)
        found += problems(type_.element, item, f"{path}{path_text((name,))}")
    return found


def _keyless(type_: MergeType, item: Any) -> str:
    """Return why an item of a list has no identity, or ""."""
    if item is None:
        return "associative list with keys may not have a null element"
    if type_.form == SET:
        return ""
    if not isinstance(item, dict):
        return "associative list with keys may not have non-map elements"
    for key, default in type_.keys:
        if item.get(key, default) is None:
            return (
                f'associative list with keys has an element that omits key field "{key}"'
                " (and doesn't have default value)"
            )
    return ""


_NAMES = {"object": "map", "array": "list", "number": "numeric (int or float)"}
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "object": (dict,), "array": (list,),
}  # fmt: skip


def _fits(expected: str, value: Any) -> bool:
    if expected == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, _JSON_TYPES[expected])


def _shown(expected: str, value: Any) -> str:
    text = _encode(value).decode()
    return f"&{{{text}}}" if expected in ("object", "array") else text
