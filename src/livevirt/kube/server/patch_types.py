"""Which patch types a kind takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from livevirt.errors import UnsupportedMediaType
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.schema import Type
from livevirt.kube.server.patches import json, merge, strategic

Apply = Callable[[Object, Any, Type], Object]

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"

_TYPES: dict[str, Apply] = {
    JSON: lambda stored, patch, _: json.apply(stored, patch),
    MERGE: lambda stored, patch, _: merge.apply(stored, patch),
    STRATEGIC: strategic.apply,
}


def find(content_type: str, kind: Kind) -> Apply:
    """Return what applies a patch of this type; refuse one the kind does not take."""
    types = accepted(kind)
    if content_type == APPLY:
        raise UnsupportedMediaType(
            "server-side apply is not available yet; use client-side apply (kubectl apply without"
            " --server-side)"
        )
    if content_type not in types:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include:"
            f" {', '.join(types)}"
        )
    return _TYPES[content_type]


def accepted(kind: Kind) -> list[str]:
    """List the media types a kind's patches may have, as clients are told."""
    return [JSON, MERGE, APPLY] if kind.custom else [JSON, MERGE, STRATEGIC, APPLY]
