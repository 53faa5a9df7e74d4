"""Built-in kinds as kube-apiserver reads them: into typed structs and out again.

Unknown fields and nulls vanish, wrong types are refused, quantities and times take their canonical
form, empty optional values are left out and `always` fields are there even when empty.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from livevirt.errors import BadRequest
from livevirt.kube.objects import quantity, times
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.schema import Field, Type

_GO_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}
_INT_BOUNDS = {"int32": 2**31, "int64": 2**63}
_EMPTY: tuple[Any, ...] = ("", 0, False)


def decode(type_: Type, obj: Object, unknown: list[str]) -> Object:
    """Return `obj` as a value of an object type; paths of unknown fields are added to `unknown`."""
    return _object(type_, obj, "", unknown)


def _object(type_: Type, value: Any, path: str, unknown: list[str]) -> Object:
    if not isinstance(value, dict):
        raise _mismatch(value, path, type_.name or "object")
    fields = type_.fields
    found: Object = {}
    for name, inner in value.items():
        field = fields.get(name)
        if field is None:
            if path or name not in ("kind", "apiVersion"):
                unknown.append(f"{path}{name}")
            continue
        if inner is None:
            continue
        if type(inner) is str and field.type.form == "string":  # most fields: nothing to convert
            if inner or field.pointer or field.always:
                found[name] = inner
            continue
        decoded = _value(field.type, inner, f"{path}{name}", unknown)
        if _kept(field, decoded):
            found[name] = decoded
    for field in type_.always:
        if field.name not in found:
            found[field.name] = _zero(field.type)
    return found


def _kept(field: Field, value: Any) -> bool:
    """Return whether Go's encoder would write the value (`omitempty`)."""
    if field.pointer or field.always:
        return True
    if isinstance(value, (dict, list)):  # a tuple: a union is built again each time
        return bool(value) or field.type.form in ("object", "object-any", "any")
    return value not in _EMPTY or field.type.form in ("any", "intorstring")


def _zero(type_: Type) -> Any:
    match type_.form:
        case "object":
            return {field.name: _zero(field.type) for field in type_.always}
        case "string" | "bytes":
            return ""
        case "integer" | "number":
            return 0
        case "boolean":
            return False
        case "quantity":
            return "0"
        case "map":
            return {}
        case "list":
            return []
        case _:
            return None


def _value(type_: Type, value: Any, path: str, unknown: list[str]) -> Any:
    match type_.form:
        case "string":
            if type(value) is not str:
                raise _mismatch(value, path, "string")
            return value
        case "map":
            return _map(type_, value, path, unknown)
        case "object":
            return _object(type_, value, f"{path}.", unknown)
        case "list":
            if not isinstance(value, list):
                raise _mismatch(value, path, "array")
            inner = type_.element
            assert inner is not None
            return [
                _zero(inner) if v is None else _value(inner, v, f"{path}[{i}]", unknown)
                for i, v in enumerate(value)
            ]
        case "integer":
            return _integer(type_, value, path)
        case "boolean":
            if type(value) is not bool:
                raise _mismatch(value, path, "bool")
            return value
        case "quantity":
            return _quantity(value, path)
        case "bytes":
            return _bytes(value, path)
        case "intorstring":
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise _mismatch(value, path, "intstr.IntOrString")
            return value
        case "number":
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _mismatch(value, path, "float64")
            return value
        case "time" | "nullable-time" | "microtime" | "duration":
            return _moment(type_.form, value, path)
        case "object-any":
            if not isinstance(value, dict):
                raise _mismatch(value, path, "object")
            return value
        case _:
            return value


def _map(type_: Type, value: Any, path: str, unknown: list[str]) -> Object:
    if not isinstance(value, dict):
        raise _mismatch(value, path, "map")
    inner = type_.element
    assert inner is not None
    if inner.form == "string":
        for key, text in value.items():
            if type(text) is not str:
                if text is None:
                    return {k: "" if v is None else v for k, v in value.items()}
                raise _mismatch(text, f"{path}.{key}", "string")
        return value
    return {
        k: _zero(inner) if v is None else _value(inner, v, f"{path}.{k}", unknown)
        for k, v in value.items()
    }


def _integer(type_: Type, value: Any, path: str) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise _mismatch(value, path, type_.format)
    bound = _INT_BOUNDS[type_.format]
    if not -bound <= value < bound:
        raise BadRequest(
            f"json: cannot unmarshal number {value} into Go struct field {path} of type"
            f" {type_.format}"
        )
    return value


def _quantity(value: Any, path: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _mismatch(value, path, "resource.Quantity")
    try:
        return str(quantity.parse(value))
    except quantity.QuantityError as error:
        raise BadRequest(f"{path}: {error}") from None


def _bytes(value: Any, path: str) -> str:
    if type(value) is not str:
        raise _mismatch(value, path, "[]uint8")
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"{path}: illegal base64 data") from None
    return value


def _moment(form: str, value: Any, path: str) -> str:
    if type(value) is not str:
        raise _mismatch(value, path, "Time")
    if value == "":
        return ""
    try:
        if form == "duration":
            return times.normalise_duration(value)
        if form == "microtime":
            return times.normalise_micro_time(value)
        return times.normalise_time(value)
    except ValueError as error:
        raise BadRequest(f"{path}: {error}") from None


def _mismatch(value: Any, path: str, wanted: str) -> BadRequest:
    got = _GO_NAMES.get(type(value), "object")
    return BadRequest(
        f"json: cannot unmarshal {got} into Go struct field {path or 'the object'} of type {wanted}"
    )
