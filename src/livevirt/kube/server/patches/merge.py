"""JSON merge patch (RFC 7386): objects are merged, null removes, all else replaces."""

from __future__ import annotations

from typing import Any

from livevirt.errors import BadRequest
from livevirt.kube.objects.request import Object


def apply(target: Object, patch: Any) -> Object:
    """Return the patched object, which shares with `target` whatever did not change."""
    if not isinstance(patch, dict):
        raise BadRequest(f"a merge patch is a JSON object, not {type(patch).__name__}")
    try:
        return _merged(target, patch)
    except RecursionError:
        raise BadRequest("the merge patch is nested too deeply") from None


def _merged(target: Object, patch: Object) -> Object:
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            below = result.get(key)
            # Also where nothing was there before: nulls in the patch must not become values.
            result[key] = _merged(below if isinstance(below, dict) else {}, value)
        else:
            result[key] = value
    return result
