"""Refusals that are no field errors, worded and detailed as a kube-apiserver does."""

from __future__ import annotations

from typing import Any

from livevirt.errors import Conflict, Forbidden
from livevirt.kube.objects.kind import Kind


def forbidden(
    kind: Kind, name: str, why: str, causes: list[dict[str, str]] | None = None
) -> Forbidden:
    """The write is understood and not allowed."""
    details = _details(kind.plural, kind.group, name)
    if causes:
        details["causes"] = causes
    return Forbidden(f"{_named(kind.resource, name)} is forbidden: {why}", details=details)


def conflict(kind: Kind, name: str, why: str, subresource: str = "") -> Conflict:
    """The object is not in the state the write expects."""
    door = f"/{subresource}" if subresource else ""
    resource = f"{kind.plural}{door}.{kind.group}" if kind.group else f"{kind.plural}{door}"
    return Conflict(
        f"Operation cannot be fulfilled on {_named(resource, name)}: {why}",
        details=_details(f"{kind.plural}{door}", kind.group, name),
    )


def _named(resource: str, name: str) -> str:
    return f'{resource} "{name}"' if name else resource


def _details(kind: str, group: str, name: str) -> dict[str, Any]:
    details = {"name": name} if name else {}
    if group:
        details["group"] = group
    return {**details, "kind": kind}
