"""JSON patch (RFC 6902), as lax and as strict as kube-apiserver.

Two operations differ from the RFC: `replace` of a member that is not there adds it, and `test`
takes a member that is not there for null. The object itself (path "") can be tested and copied,
but neither be replaced nor taken away.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from jsonpatch import JsonPatch, JsonPatchException
from jsonpointer import JsonPointer, JsonPointerException

from livevirt.errors import BadRequest, Invalid, RequestEntityTooLarge
from livevirt.kube.objects.request import Object

MAX_OPERATIONS = 10_000
MAX_COPIED = 3 * 1024 * 1024  # bytes of JSON; a few dozen copies could otherwise fill the memory


def apply(target: Object, patch: Any) -> Object:
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
