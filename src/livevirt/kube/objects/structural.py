"""Custom resources as kube-apiserver reads them: pruned and checked against their schema."""

from __future__ import annotations

import re
from typing import Any

from livevirt.kube.objects import field_error, typed
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.quantity import QuantityError, parse
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.schema import Field, Type, definitions

QUANTITY = re.compile(
    r"(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?"
    r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?"
)
_INT_BOUNDS = {"int32": 2**31, "int64": 2**63}
_JSON_NAMES = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object",
    type(None): "null",
}  # fmt: skip
_TYPE_NAMES = {
    "map": "object", "object-any": "object", "list": "array", "bytes": "string", "time": "string",
    "microtime": "string", "duration": "string", "nullable-time": "string",
}  # fmt: skip


def prune(type_: Type, obj: Object, unknown: list[str]) -> Object:
    """Return `obj` without unknown fields and meaningless nulls; metadata is left to others."""
    return _prune_object(type_, obj, "", unknown, root=True)


def _prune_object(
    type_: Type, value: Object, path: str, unknown: list[str], root: bool = False
) -> Object:
    found: Object = {}
    for name, inner in value.items():
        if root and name in ("kind", "apiVersion", "metadata"):
            found[name] = inner
            continue
        field = type_.fields.get(name)
        if field is None:
            unknown.append(f"{path}{name}")
        elif inner is None and field.type.form not in ("nullable-time", "any"):
            continue
        elif field.open:
            found[name] = inner
        else:
            found[name] = _prune(field.type, inner, f"{path}{name}", unknown)
    return found


def _prune(type_: Type, value: Any, path: str, unknown: list[str]) -> Any:
    match type_.form, value:
        case "object", dict():
            return _prune_object(type_, value, f"{path}.", unknown)
        case "list", list() if type_.element is not None:
            return [_prune(type_.element, v, f"{path}[{i}]", unknown) for i, v in enumerate(value)]
        case "map", dict() if type_.element is not None:
            return {k: _prune(type_.element, v, f"{path}.{k}", unknown) for k, v in value.items()}
        case _:
            return value


def validate_update(type_: Type, new: Object, old: Object) -> list[FieldError]:
    """List what in a pruned object breaks its schema; what did before is no news if the spec stays.

    So an object from before a rule came can still be labelled, reported on and deleted.
    """
    found = validate(type_, new)
    known = validate(type_, old) if found and new.get("spec") == old.get("spec") else []
    return [error for error in found if error not in known]


def validate(type_: Type, obj: Object) -> list[FieldError]:
    """List what in a pruned object breaks its schema.

    Beyond a schema every quantity can be read as one, and the known fields of an open object are of
    their types: who works with the object takes that for granted.
    """
    errors: list[FieldError] = []
    for name, field in type_.fields.items():
        if name == "metadata":
            continue
        if name in obj:
            _check(field, field.type, obj[name], name, errors)
        elif field.required:
            errors.append(field_error.required(name))
    return errors


def _check(field: Field, type_: Type, value: Any, path: str, errors: list[FieldError]) -> None:
    if not _fits(type_, value):
        errors.append(_type_error(type_, value, path))
        return
    if field.enum and value not in field.enum:
        errors.append(field_error.not_supported(path, value, field.enum))
    if field.minimum is not None and value < field.minimum:
        detail = f"{path} in body should be greater than or equal to {field.minimum}"
        errors.append(field_error.invalid(path, value, detail))
    if field.open:
        value = _without_nulls(_prune(type_, value, path, []))
    match type_.form:
        case "integer" if not _in_bounds(type_, value):
            detail = f"Checked value must be of type integer with format {type_.format} in {path}"
            errors.append(field_error.invalid(path, value, detail))
        case "quantity" if why := _no_quantity(value, path):
            errors.append(field_error.invalid(path, value, why))
        case "object":
            for name, inner in type_.fields.items():
                if name in value:
                    _check(inner, inner.type, value[name], f"{path}.{name}", errors)
                elif inner.required:
                    errors.append(field_error.required(f"{path}.{name}"))
        case "list" if type_.element is not None:
            plain = Field("", type_.element)
            for i, item in enumerate(value):
                _check(plain, type_.element, item, f"{path}[{i}]", errors)
        case "map" if type_.element is not None:
            plain = Field("", type_.element)
            for key, item in value.items():
                _check(plain, type_.element, item, f"{path}.{key}", errors)


def _without_nulls(value: Any) -> Any:
    """Return a value without the nulls in it, which Go reads as empty."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


def _in_bounds(type_: Type, value: float) -> bool:
    bound = _INT_BOUNDS.get(type_.format)
    return bound is None or -bound <= value < bound


def _no_quantity(value: str | int, path: str) -> str:
    """Return why a value is no quantity, or "". The pattern alone lets `1e1.5` pass."""
    if isinstance(value, str) and not QUANTITY.fullmatch(value):
        return f"{path} in body should match '^{QUANTITY.pattern}$'"
    try:
        parse(value)
    except QuantityError as error:
        return str(error)
    return ""


def _fits(type_: Type, value: Any) -> bool:
    match type_.form:
        case "any":
            return True
        case "object" | "map" | "object-any":
            return isinstance(value, dict)
        case "list":
            return isinstance(value, list)
        case "integer":
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "quantity" | "intorstring":
            return isinstance(value, str | int) and not isinstance(value, bool)
        case "nullable-time":
            return value is None or isinstance(value, str)
        case _:
            return isinstance(value, str)


def _type_error(type_: Type, value: Any, path: str) -> FieldError:
    wanted = _TYPE_NAMES.get(type_.form, type_.form)
    if type_.form in ("quantity", "intorstring"):
        wanted = "integer,string"
    got = _JSON_NAMES.get(type(value), "object")
    return field_error.type_invalid(path, got, f'{path} in body must be of type {wanted}: "{got}"')


def shape(kind: Kind, version: str, body: Object) -> tuple[Object, list[str]]:
    """Return a body with typed metadata and known fields only, and what was unknown."""
    unknown: list[str] = []
    api_version = kind.api_version_of(version)
    if not kind.custom:
        found = typed.decode(kind.schema(version), body, unknown)
        return {"kind": kind.kind, "apiVersion": api_version, **found}, unknown
    metadata = body.get("metadata")
    meta_type = definitions()["meta.ObjectMeta"]
    meta_unknown: list[str] = []
    clean = typed.decode(meta_type, {} if metadata is None else metadata, meta_unknown)
    unknown += [f"metadata.{path}" for path in meta_unknown]
    rest = prune(kind.schema(version), body, unknown)
    for name in ("apiVersion", "kind", "metadata"):
        rest.pop(name, None)
    return {"apiVersion": api_version, "kind": kind.kind, "metadata": clean, **rest}, unknown
