"""Patches of stored objects: which types a kind accepts, JSON merge patch and JSON patch.

Merge patches follow RFC 7386 and JSON patches RFC 6902; `strategic_merge` is Kubernetes' own type.
Applying a patch returns the patched object and leaves what it was given unchanged. A patch that
cannot be understood is a BadRequest; one that does not fit the object is Invalid.

JSON patches are as lax and as strict as in kube-apiserver. Two operations differ from the RFC:
`replace` of a missing member adds it, and `test` takes a missing member for null. The object itself
(path "") can be tested and copied, but neither replaced nor removed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from jsonpatch import JsonPatch, JsonPatchException
from jsonpointer import JsonPointer, JsonPointerException

from livevirt.errors import BadRequest, Invalid, RequestEntityTooLarge, UnsupportedMediaType
from livevirt.kube.objects import merge_patch
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.schema import Type
from livevirt.kube.server import bodies, strategic_merge

# ---------------------------------------------------------------- merge patch


def apply_merge_patch(target: Object, patch: Any) -> Object:
    """Return the patched object, which shares with `target` whatever did not change."""
    if not isinstance(patch, dict):
        raise BadRequest(f"a merge patch is a JSON object, not {type(patch).__name__}")
    try:
        patched: Object = merge_patch.apply(patch, target)
        return patched
    except RecursionError:
        raise BadRequest("the merge patch is nested too deeply") from None


# ---------------------------------------------------------------- JSON patch

MAX_OPERATIONS = 10_000
MAX_COPIED = 3 * 1024 * 1024  # bytes of JSON; a few dozen copies could otherwise fill the memory


def apply_json_patch(target: Object, patch: Any) -> Object:
    """Return the patched object; one operation that fails makes the whole patch Invalid."""
    if not isinstance(patch, list) or not all(isinstance(step, dict) for step in patch):
        raise BadRequest("a JSON patch is a list of operations, each a JSON object")
    if len(patch) > MAX_OPERATIONS:
        raise RequestEntityTooLarge(
            "Request entity is too large: The allowed maximum operations in a JSON patch"
            f" is {MAX_OPERATIONS}, got {len(patch)}"
        )
    try:
        document = copy.deepcopy(target)
        copied = 0
        for step in patch:
            copied += _perform(document, step)
            if copied > MAX_COPIED:
                raise Invalid(f"the copies of a JSON patch may not exceed {MAX_COPIED} bytes")
    except RecursionError:
        raise BadRequest("the JSON patch or its result is nested too deeply") from None
    return document


def _perform(document: Object, step: Object) -> int:
    """Do one operation in place; return how many bytes it copies."""
    kind, path, source = step.get("op"), step.get("path"), step.get("from")
    if not isinstance(path, str):
        raise Invalid(f"{kind} operation has no path")
    if path == "" and kind != "test":
        raise Invalid(f"{kind} operation does not apply: the object itself stays")
    copied = 0
    try:
        if kind == "replace" and _in_object(document, path):
            step = step | {"op": "add"}
        elif kind == "test" and step.get("value", "") is None and _is_absent(document, path):
            return 0
        elif kind == "copy" and isinstance(source, str):
            copied = _size(JsonPointer(source).resolve(document))
        JsonPatch([step]).apply(document, in_place=True)
    except (JsonPatchException, JsonPointerException) as error:
        raise Invalid(_refusal(kind, path, error)) from error
    return copied


def _in_object(document: Object, path: str) -> bool:
    parent, _ = JsonPointer(path).to_last(document)
    return isinstance(parent, dict)


def _is_absent(document: Object, path: str) -> bool:
    parent, last = JsonPointer(path).to_last(document)
    return isinstance(parent, dict) and last is not None and last not in parent


def _size(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))


def _refusal(kind: Any, path: str, error: Exception) -> str:
    if kind == "test":
        return f"testing value {path} failed"  # without the values: they may be secret
    return f"{kind} operation does not apply at {path}: {error}"


# ---------------------------------------------------------------- patch types

Apply = Callable[[Object, Any, Type], Object]

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
APPLY = bodies.APPLY
STRATEGIC = "application/strategic-merge-patch+json"

_TYPES: dict[str, Apply] = {
    JSON: lambda stored, patch, _: apply_json_patch(stored, patch),
    MERGE: lambda stored, patch, _: apply_merge_patch(stored, patch),
    STRATEGIC: strategic_merge.apply,
}


def applier(content_type: str, kind: Kind) -> Apply:
    """Return what applies a patch of this type; refuse one the kind does not take."""
    types = accepted_types(kind)
    if content_type not in _TYPES or content_type not in types:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include:"
            f" {', '.join(types)}"
        )
    return _TYPES[content_type]


def accepted_types(kind: Kind) -> list[str]:
    """List the media types a kind's patches may have, as listed for clients."""
    return [JSON, MERGE, APPLY] if kind.custom else [JSON, MERGE, STRATEGIC, APPLY]
