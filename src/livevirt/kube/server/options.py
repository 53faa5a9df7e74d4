"""Query parameters and delete options, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from livevirt.errors import BadRequest
from livevirt.kube.objects import field_error, metadata, refusals, typed
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.schema import definitions

_FIELD_VALIDATION = ("Ignore", "Warn", "Strict")
_PROPAGATION = ("Foreground", "Background", "Orphan")


def check_write(options: Mapping[str, str], name: str) -> None:
    """Refuse bad values of what create, update and patch take; `name` is the options' kind."""
    if not options:
        return
    errors = _dry_run(options)
    manager = options.get("fieldManager", "")
    if manager:
        errors += metadata.validate_field_manager(manager, "fieldManager")
    mode = options.get("fieldValidation", "")
    if mode and mode not in _FIELD_VALIDATION:
        errors.append(field_error.not_supported("fieldValidation", mode, _FIELD_VALIDATION))
    if errors:
        raise refusals.invalid_options(name, errors)


def _dry_run(options: Mapping[str, str]) -> list[FieldError]:
    value = options.get("dryRun")
    if value is None or value == "All":
        return []
    return [field_error.not_supported("dryRun", value, ["All"])]


def number(options: Mapping[str, str], name: str) -> int | None:
    """Return a whole number from the query, if it is there."""
    text = options.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise BadRequest(f"{name}: Invalid value: {text!r}: must be a whole number")
    return int(text)


def flag(options: Mapping[str, str], name: str) -> bool:
    """Return a yes-or-no parameter; a bare `name=` counts as no."""
    return options.get(name, "").lower() in ("1", "true", "t")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


def read_delete(query: Mapping[str, str], body: Any) -> DeleteOptions:
    """Merge the options in the query with those in the body, which win."""
    given: dict[str, Any] = {}
    if body is not None:
        if not isinstance(body, dict):
            raise BadRequest("the body of a delete must be a DeleteOptions object")
        if body.get("kind", "DeleteOptions") != "DeleteOptions":
            raise BadRequest(f"a delete takes DeleteOptions, not a {body['kind']}")
        if not isinstance(body.get("apiVersion"), str | None):
            raise BadRequest("the apiVersion of delete options must be a string")
        given = typed.decode(definitions()["meta.DeleteOptions"], body, [])
    grace = given.get("gracePeriodSeconds", number(query, "gracePeriodSeconds"))
    propagation = given.get("propagationPolicy") or query.get("propagationPolicy", "")
    orphan = given.get("orphanDependents", query.get("orphanDependents"))
    dry_run = given.get("dryRun") or ([query["dryRun"]] if "dryRun" in query else [])
    before = given.get("preconditions", {})
    errors = [
        field_error.not_supported("dryRun", value, ["All"]) for value in dry_run if value != "All"
    ]
    if orphan is not None and propagation:
        errors.append(
            field_error.invalid(
                "propagationPolicy", propagation,
                "orphanDependents and deletionPropagation cannot be both set",
            )
        )  # fmt: skip
    elif propagation and propagation not in _PROPAGATION:
        errors.append(field_error.not_supported("propagationPolicy", propagation, _PROPAGATION))
    if grace is not None and grace < 0:
        errors.append(field_error.invalid("gracePeriodSeconds", grace, "must not be negative"))
    if errors:
        raise refusals.invalid_options("DeleteOptions", errors)
    if orphan is not None:
        propagation = "Orphan" if orphan in (True, "true", "1") else "Background"
    return DeleteOptions(
        grace, propagation, before.get("uid", ""), before.get("resourceVersion", ""), bool(dry_run)
    )
