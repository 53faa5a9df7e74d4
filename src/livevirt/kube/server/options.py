"""Query parameters, selectors and delete options, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from livevirt.errors import BadRequest
from livevirt.kube.objects import field_error, metadata, refusals, selector, typed
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.schema import definitions

_FIELD_VALIDATION = ("Ignore", "Warn", "Strict")
_PROPAGATION = ("Foreground", "Background", "Orphan")


def check_write(options: Mapping[str, str], name: str) -> None:
    """Refuse bad values of what create, update and patch take; `name` is the options' kind."""
    if not options:
        return
    if errors := _write_errors(options):
        raise refusals.invalid_options(name, errors)


def check_patch(options: Mapping[str, str]) -> None:
    """Refuse bad values of what a patch takes that is not an apply."""
    if not options:
        return
    errors = _write_errors(options)
    if "force" in options:
        errors.append(field_error.forbidden("force", "may not be specified for non-apply patch"))
    if errors:
        raise refusals.invalid_options("PatchOptions", errors)


def check_apply(options: Mapping[str, str]) -> None:
    """Refuse bad values of what an apply takes, which must name its field manager."""
    errors = _write_errors(options)
    if not options.get("fieldManager"):
        errors.append(field_error.required("fieldManager", "is required for apply patch"))
    if errors:
        raise refusals.invalid_options("PatchOptions", errors)


def _write_errors(options: Mapping[str, str]) -> list[FieldError]:
    errors = _dry_run(options)
    manager = options.get("fieldManager", "")
    if manager:
        errors += metadata.validate_field_manager(manager, "fieldManager")
    mode = options.get("fieldValidation", "")
    if mode and mode not in _FIELD_VALIDATION:
        errors.append(field_error.not_supported("fieldValidation", mode, _FIELD_VALIDATION))
    return errors


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


# ---------------------------------------------------------------- selectors

_SELECTABLE = ("metadata.name", "metadata.namespace")


class Selection:
    """What a request wants to see of a kind."""

    def __init__(self, kind: Kind, options: Mapping[str, str]) -> None:
        labels, fields = options.get("labelSelector", ""), options.get("fieldSelector", "")
        self.everything = not labels and not fields
        try:
            self._labels = selector.parse_label_selector(labels)
            self._fields = selector.parse_field_selector(fields)
        except selector.SelectorError as error:
            raise BadRequest(str(error)) from None
        known = (*_SELECTABLE, *kind.selectable)
        for wanted in self._fields.requirements:
            if wanted.path not in known:
                raise BadRequest(f'field label not supported: "{wanted.path}"')
        self._paths = tuple(dict.fromkeys(r.path for r in self._fields.requirements))
        self.name = self._fields.exact("metadata.name")
        self.namespace = self._fields.exact("metadata.namespace")

    def matches(self, obj: Object) -> bool:
        """Return whether the request wants to see the object."""
        if self.everything:
            return True
        if not self._labels.matches(obj["metadata"].get("labels")):
            return False
        if not self._paths:
            return True
        return self._fields.matches({path: field_text(obj, path) for path in self._paths})


def field_text(obj: Object, path: str) -> str:
    """Return a field the way field selectors compare it: absent is empty."""
    value: Any = obj
    for part in path.split("."):
        if not isinstance(value, dict):
            return ""
        value = value.get(part)
    if path == "source" and isinstance(value, dict):  # events: the component stands for it
        value = value.get("component")
    match value:
        case None if path in ("spec.hostNetwork", "spec.unschedulable"):
            return "false"
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)
