"""Strategic merge patch: a merge patch that knows which lists are merged by a key.

The schema sets how each list is merged: `merge=name` by that key, bare `merge` as a set; any other
list is replaced. Directives in the patch say the rest:

    $patch: replace | delete | merge     in an object, or as an element of a list merged by key
    $retainKeys: [a, b]                  the object keeps only these fields
    $setElementOrder/F: […]              the order of list F, by key or by value
    $deleteFromPrimitiveList/F: […]      values to take out of list F

A list keeps its order: elements named by the patch follow the patch (or its order directive),
the others follow the stored object. Fields the schema does not know are merged as in a merge patch.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from livevirt.errors import BadRequest
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.schema import Field, Type

PATCH = "$patch"
RETAIN = "$retainKeys"
ORDER = "$setElementOrder"
DELETE = "$deleteFromPrimitiveList"

_ABSENT: Any = object()
_Identity = tuple[type, Any]  # the type too: to Python 1 is True, to JSON it is not


def apply(target: Object, patch: Any, type_: Type | None) -> Object:
    """Return the patched object, which shares with `target` whatever did not change."""
    if not isinstance(patch, dict):
        raise BadRequest(f"a strategic merge patch is a JSON object, not {type(patch).__name__}")
    try:
        return _merge_object(target, patch, type_)
    except RecursionError:
        raise BadRequest("the strategic merge patch is nested too deeply") from None


def _merge_object(stored: Object, patch: Object, type_: Type | None) -> Object:
    match _directive(patch):
        case "replace":
            return _new_object(patch)
        case "delete":
            return {}
    changes = {key: value for key, value in patch.items() if not _is_directive(key)}
    result = _retain(stored, patch, changes)
    orders, deletions = _parallel_lists(patch, ORDER), _parallel_lists(patch, DELETE)
    for key in orders.keys() - changes.keys():
        if isinstance(result.get(key), list) and _is_merged(_field(type_, key)):
            changes[key] = []  # nothing new, but the order may be
    for key, value in changes.items():
        merged = _merge_member(result.get(key), value, key, type_, orders.get(key, []))
        if merged is _ABSENT:
            result.pop(key, None)
        else:
            result[key] = merged
    for key, values in deletions.items():
        if isinstance(result.get(key), list):
            gone = {_named_by(value, "", key) for value in values}
            result[key] = [value for value in result[key] if _identity(value, "") not in gone]
    return result


def _merge_member(stored: Any, patch: Any, key: str, type_: Type | None, order: list[Any]) -> Any:
    field = _field(type_, key)
    match stored, patch:
        case dict(), dict() if field is None or not field.replace:
            return _merge_object(stored, patch, field.type if field else _element(type_))
        case _, list() if field is not None and _is_merged(field):
            plain = [element for element in patch if _directive(element) in (None, "merge")]
            if order and not _is_subsequence(plain, order, field):
                raise BadRequest(f"the order in the patch of {key} does not match {ORDER}")
            if isinstance(stored, list):
                return _arrange(_merge_list(stored, patch, field), order or plain, stored, field)
    # A list where there was none is taken as it is, even if two elements share a key.
    return _new(patch)


def _merge_list(stored: list[Any], patch: list[Any], field: Field) -> list[Any]:
    """Merge each element into the stored one that it names, or add it."""
    key, name = field.merge or "", field.name
    plain = [element for element in patch if _directive(element) in (None, "merge")]
    if any(_directive(element) == "replace" for element in patch):
        return [_new(element) for element in plain]
    gone = {_named_by(each, key, name) for each in patch if _directive(each) == "delete"}
    merged = [element for element in stored if _identity(element, key) not in gone]
    places = _places(merged, key)
    for element in plain:
        at = places.setdefault(_named_by(element, key, name), len(merged))
        if at == len(merged):
            merged.append(_new_object(element) if key else element)
        elif key:
            merged[at] = _merge_object(merged[at], element, field.type.element)
    return merged


def _arrange(elements: list[Any], named: list[Any], stored: list[Any], field: Field) -> list[Any]:
    """Sort the named elements as named; put the others before what they stood before."""
    key = field.merge or ""
    ranks, places = _places(named, key), _places(stored, key)
    end = len(elements) + len(stored) + len(named)

    def rank(element: Any) -> int:
        return ranks.get(_identity(element, key), end)

    def place(element: Any) -> int:
        return places.get(_identity(element, key), end)

    ours = sorted((element for element in elements if rank(element) < end), key=rank)
    others = deque(sorted((e for e in elements if rank(e) == end), key=place))
    arranged = []
    for element in ours:
        while others and place(others[0]) < place(element) < end:
            arranged.append(others.popleft())
        arranged.append(element)
    return [*arranged, *others]


def _is_subsequence(elements: list[Any], order: list[Any], field: Field) -> bool:
    key, name = field.merge or "", field.name
    ahead = iter([_named_by(each, key, name) for each in order])
    return all(_named_by(element, key, name) in ahead for element in elements)


def _places(elements: list[Any], key: str) -> dict[_Identity | None, int]:
    """Map each identity to where it is found first."""
    places: dict[_Identity | None, int] = {}
    for at, element in enumerate(elements):
        places.setdefault(_identity(element, key), at)
    return places


def _identity(element: Any, key: str) -> _Identity | None:
    """Return what an element is known by: the value of its key, or the scalar itself."""
    value = element if not key else element.get(key) if isinstance(element, dict) else None
    return None if isinstance(value, dict | list | None) else (type(value), value)


def _named_by(element: Any, key: str, field: str) -> _Identity:
    if key and not isinstance(element, dict):
        raise BadRequest(f"{field}: expected an object with {key}, not {type(element).__name__}")
    identity = _identity(element, key)
    if identity is None:
        what = (
            f"an element does not contain the declared merge key: {key}"
            if key
            else ("invalid patch format of primitive list")
        )
        raise BadRequest(f"{field}: {what}")
    return identity


def _new(patch: Any) -> Any:
    """Return what a patch makes where there is nothing to merge with."""
    match patch:
        case None:
            return _ABSENT
        case dict():
            return _ABSENT if _directive(patch) == "delete" else _new_object(patch)
        case list():
            kept = (each for each in patch if _directive(each) in (None, "merge"))
            return [None if each is None else _new(each) for each in kept]
    return patch


def _new_object(patch: Object) -> Object:
    members = ((key, _new(value)) for key, value in patch.items() if not _is_directive(key))
    return {key: value for key, value in members if value is not _ABSENT}


def _retain(stored: Object, patch: Object, changes: Object) -> Object:
    if RETAIN not in patch:
        return dict(stored)
    if not isinstance(patch[RETAIN], list):
        raise BadRequest("invalid patch format of retainKeys")
    keys = {key for key in patch[RETAIN] if isinstance(key, str)}
    if any(value is not None and key not in keys for key, value in changes.items()):
        raise BadRequest("patch content doesn't match retainKeys list")
    return {key: value for key, value in stored.items() if key in keys}


def _directive(patch: Any) -> str | None:
    if not isinstance(patch, dict) or PATCH not in patch:
        return None
    directive = patch[PATCH]
    if directive not in ("replace", "delete", "merge"):
        raise BadRequest(f"unknown patch type: {directive}")
    return str(directive)


def _is_directive(key: str) -> bool:
    return key in (PATCH, RETAIN) or key.startswith((ORDER, DELETE))


def _parallel_lists(patch: Object, directive: str) -> dict[str, list[Any]]:
    """Return the lists that a directive gives, by the field each is about."""
    found: dict[str, list[Any]] = {}
    for key, value in patch.items():
        if key.startswith(directive):
            name, _, field = key.partition("/")
            if name != directive or not field or not isinstance(value, list):
                raise BadRequest(f"invalid patch format of {directive}: {key} must be a list")
            found[field] = value
    return found


def _field(type_: Type | None, key: str) -> Field | None:
    return type_.fields.get(key) if type_ is not None else None


def _element(type_: Type | None) -> Type | None:
    return type_.element if type_ is not None else None


def _is_merged(field: Field | None) -> bool:
    return field is not None and field.merge is not None
