"""JSON merge patches (RFC 7386): make one, apply one, combine several."""

from __future__ import annotations

from typing import Any

from livevirt.kube.objects.request import Object


def difference(old: Any, new: Any) -> Any:
    """Return the merge patch that makes `old` into `new`."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    gone = {name: None for name in old if name not in new}
    changed = {n: difference(old.get(n), v) for n, v in new.items() if old.get(n) != v}
    return {**gone, **changed}


def apply(patch: Any, value: Any) -> Any:
    """Return what a merge patch makes of a value; the result shares what did not change."""
    if not isinstance(patch, dict):
        return patch
    # Also where nothing was there before: nulls in the patch must not become values.
    found = dict(value) if isinstance(value, dict) else {}
    for name, inner in patch.items():
        if inner is None:
            found.pop(name, None)
        elif isinstance(inner, dict):
            found[name] = apply(inner, found.get(name))
        else:
            found[name] = inner
    return found


def combined(*patches: Object) -> Object:
    """Return one merge patch that does what several do; they name different fields."""
    found: Object = {}
    for patch in patches:
        for name, value in patch.items():
            both = isinstance(value, dict) and isinstance(found.get(name), dict)
            found[name] = combined(found[name], value) if both else value
    return found
