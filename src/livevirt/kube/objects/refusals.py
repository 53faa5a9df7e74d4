"""Refusals with kube-apiserver's wording and details."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from livevirt.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
    Timeout,
)
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind


def details(kind: Kind, name: str = "", *, as_kind: bool = False, **more: Any) -> dict[str, Any]:
    """Return a Status' `details` about an object."""
    found: dict[str, Any] = {}
    if name:
        found["name"] = name
    if kind.group:
        found["group"] = kind.group
    found["kind"] = kind.kind if as_kind else kind.plural
    found.update(more)
    return found


def not_found(kind: Kind, name: str) -> NotFound:
    """Return the refusal for an object that is not there."""
    return NotFound(f'{kind.resource} "{name}" not found', details=details(kind, name))


def no_such_path() -> NotFound:
    """Return the refusal for a path that leads nowhere."""
    return NotFound("the server could not find the requested resource")


def not_served(what: str) -> ApiError:
    """Return the refusal of something KubeVirt has and we have not."""
    return ApiError(f"livevirt does not serve {what}", code=501, reason="NotImplemented")


def method_not_allowed() -> MethodNotAllowed:
    """Return the refusal for a verb that a resource does not have."""
    return MethodNotAllowed("the server does not allow this method on the requested resource")


def already_exists(kind: Kind, name: str) -> AlreadyExists:
    """Return the refusal for a name that is taken."""
    return AlreadyExists(f'{kind.resource} "{name}" already exists', details=details(kind, name))


def modified(kind: Kind, name: str) -> Conflict:
    """Return the refusal of a write based on an old version."""
    return Conflict(
        f'Operation cannot be fulfilled on {kind.resource} "{name}": the object has been modified;'
        " please apply your changes to the latest version and try again",
        details=details(kind, name),
    )


def precondition(kind: Kind, name: str, what: str, wanted: str, found: str) -> Conflict:
    """Return the refusal of a write whose uid or version precondition fails."""
    return Conflict(
        f'Operation cannot be fulfilled on {kind.kind} "{name}": the {what} in the precondition'
        f" ({wanted}) does not match the {what} in record ({found})."
        " The object might have been deleted and then recreated",
        details=details(kind, name, as_kind=True),
    )


def invalid(kind: Kind, name: str, errors: Sequence[FieldError], kind_name: str = "") -> Invalid:
    """Return the refusal that lists every field that breaks a rule."""
    shown = kind_name or kind.kind
    qualified = f"{shown}.{kind.group}" if kind.group else shown
    found = details(kind, name, as_kind=True, causes=causes(errors))
    found["kind"] = shown
    return Invalid(f'{qualified} "{name}" is invalid: {_summary(errors)}', details=found)


def invalid_options(options: str, errors: Sequence[FieldError]) -> Invalid:
    """Return the refusal of query parameters or delete options."""
    return Invalid(
        f'{options}.meta.k8s.io "" is invalid: {_summary(errors)}',
        details={"group": "meta.k8s.io", "kind": options, "causes": causes(errors)},
    )


def causes(errors: Sequence[FieldError]) -> list[dict[str, str]]:
    """Return the causes of a Status, one per field error."""
    return [{"reason": e.reason, "message": e.message, "field": e.field} for e in errors]


def _summary(errors: Sequence[FieldError]) -> str:
    texts = list(dict.fromkeys(str(e) for e in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def too_large_version(wanted: int, current: int) -> Timeout:
    """Return the refusal of a read at a version that does not exist yet."""
    return Timeout(
        f"Too large resource version: {wanted}, current: {current}",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ],
            "retryAfterSeconds": 1,
        },
    )


def unreadable_body(error: Exception) -> BadRequest:
    """Return the refusal of a body that breaks off, or does not match its Content-Encoding."""
    return BadRequest(f"the body of the request cannot be read ({type(error).__name__})")


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
    suffix = f"/{subresource}" if subresource else ""
    resource = f"{kind.plural}{suffix}.{kind.group}" if kind.group else f"{kind.plural}{suffix}"
    return Conflict(
        f"Operation cannot be fulfilled on {_named(resource, name)}: {why}",
        details=_details(f"{kind.plural}{suffix}", kind.group, name),
    )


def _named(resource: str, name: str) -> str:
    return f'{resource} "{name}"' if name else resource


def _details(kind: str, group: str, name: str) -> dict[str, Any]:
    details = {"name": name} if name else {}
    if group:
        details["group"] = group
    return {**details, "kind": kind}
