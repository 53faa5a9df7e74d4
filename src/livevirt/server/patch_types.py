"""Which patch types a kind takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from livevirt.api.kind import Kind
from livevirt.api.request import Object
from livevirt.api.schema import Type
from livevirt.server.patches import json, merge, strategic

Apply = Callable[[Object, Any, Type], Object]

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

_TYPES: dict[str, Apply] = {
    JSON: lambda stored, patch, _: json.apply(stored, patch),
    MERGE: lambda stored, patch, _: merge.apply(stored, patch),
    STRATEGIC: strategic.apply,
}


def find(content_type: str, kind: Kind) -> Apply | None:
    """Return what applies a patch of this type, if the kind takes it."""
    return _TYPES.get(content_type) if content_type in accepted(kind) else None


def accepted(kind: Kind) -> list[str]:
    """List the media types a kind's patches may have."""
    return [JSON, MERGE] if kind.custom else [JSON, MERGE, STRATEGIC]
