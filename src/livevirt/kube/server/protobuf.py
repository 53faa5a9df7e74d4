"""Request bodies in Kubernetes' protobuf, read into the same objects that JSON gives.

A body is the magic `k8s\\0` and a `runtime.Unknown` message: the type, then the object's own
message as bytes. The schema tables give each field's number. Go writes every field that is not a
pointer, also when it is empty, so an empty value is kept for pointers only. How deep messages go is
bounded by the schema, how much is made by the body's length; what cannot be read is a BadRequest.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from livevirt.errors import BadRequest
from livevirt.kube.objects import times
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.schema import Field, Type, definitions

MAGIC = b"k8s\0"
_TABLES = {
    "v1": "core",
    "apps/v1": "apps",
    "authentication.k8s.io/v1": "authentication",
    "authorization.k8s.io/v1": "authorization",
    "coordination.k8s.io/v1": "coordination",
    "discovery.k8s.io/v1": "discovery",
    "events.k8s.io/v1": "events",
    "policy/v1": "policy",
    "rbac.authorization.k8s.io/v1": "rbac",
    "scheduling.k8s.io/v1": "scheduling",
    "storage.k8s.io/v1": "storage",
}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _Malformed(ValueError):
    """The bytes break the wire format, or do not fit the schema."""


def decode(body: bytes) -> tuple[str, str, Object]:
    """Return the `apiVersion`, the `kind` and the object, both of which it names too."""
    if not body.startswith(MAGIC):
        raise BadRequest("the body is not Kubernetes protobuf: it does not begin with k8s\\0")
    try:
        api_version, kind, raw = _envelope(body[len(MAGIC) :])
        obj: Object = {"apiVersion": api_version, "kind": kind}
        _read_message(_type(api_version, kind), raw, obj)
    except _Malformed as error:
        raise BadRequest(f"the body is not valid protobuf: {error}") from error
    return api_version, kind, obj


def _envelope(body: bytes) -> tuple[str, str, bytes]:
    unknown = dict(_records(body))
    meta = dict(_records(_bytes(unknown.get(1, b""))))
    if _bytes(unknown.get(3, b"")):
        raise BadRequest("an encoded object in a protobuf body cannot be read")
    return _text(meta.get(1, b"")), _text(meta.get(2, b"")), _bytes(unknown.get(2, b""))


def _type(api_version: str, kind: str) -> Type:
    """Return the type of a body; the options of a delete exist in every group."""
    if kind == "DeleteOptions":
        return definitions()["meta.DeleteOptions"]
    try:
        found = definitions()[f"{_TABLES[api_version]}.{kind}"]
    except KeyError:
        found = None
    if found is None or "metadata" not in found.fields:
        raise BadRequest(f'no kind "{kind}" is registered for version "{api_version}"')
    return found


# ---------------------------------------------------------------- messages

_Value = int | bytes


def _records(data: bytes) -> Iterator[tuple[int, _Value]]:
    """Split a message into field numbers and values: integers, or bytes of any length."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise _Malformed("a field has the number 0")
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise _Malformed(f"field {number} has the unknown wire type {wire}")
        if at + size > len(data):
            raise _Malformed(f"field {number} is cut off")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _Malformed("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise _Malformed("a number is too long")


@functools.cache
def _message(type_: Type) -> dict[int, Field | Type]:
    """Map field numbers to a type's own fields, and to the messages it has inlined."""
    spliced = {id(field) for _, inner in type_.inlines for field in inner.fields.values()}
    own = (field for field in type_.fields.values() if id(field) not in spliced)
    found: dict[int, Field | Type] = {field.number: field for field in own if field.number}
    return found | dict(type_.inlines)


def _read_message(type_: Type, data: bytes, into: Object) -> None:
    message = _message(type_)
    for number, value in _records(data):
        match message.get(number):
            case Type() as inlined:
                _read_message(inlined, _bytes(value), into)
            case Field() as field:
                _read_field(field, value, into)


def _read_field(field: Field, value: _Value, into: Object) -> None:
    form, name, element = field.type.form, field.name, field.type.element
    if form == "list" and element is not None:
        into.setdefault(name, []).extend(_elements(element, value))
    elif form == "map" and element is not None:
        key, found = _entry(element, _bytes(value))
        into.setdefault(name, {})[key] = found
    elif form == "object":
        # A message that comes in pieces is one message.
        _read_message(field.type, _bytes(value), below := into.get(name, {}))
        _set(into, field, below)
    else:
        _set(into, field, _scalar(field.type, value))


def _set(into: Object, field: Field, value: Any) -> None:
    """Keep a value unless it is Go's zero; None is a time or raw JSON that was never set."""
    match field.type.form:
        case "quantity":
            kept = field.pointer or value != "0"
        case "time" | "microtime" | "any" | "object-any":
            kept = value is not None
        case _:
            kept = field.pointer or bool(value)
    if not kept:
        into.pop(field.name, None)
    else:
        into[field.name] = value


def _elements(type_: Type, value: _Value) -> list[Any]:
    if type_.form in _PACKED and isinstance(value, bytes):
        return [_scalar(type_, number) for number in _packed(value)]
    return [_value(type_, value)]


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _entry(type_: Type, data: bytes) -> tuple[str, Any]:
    entry = dict(_records(data))
    if type_.form == "list" and type_.element is not None:  # a message of its own, with `items`
        items = [value for number, value in _records(_bytes(entry.get(2, b""))) if number == 1]
        return _text(entry.get(1, b"")), [_value(type_.element, item) for item in items]
    empty: _Value = 0 if type_.form in _PACKED else b""
    return _text(entry.get(1, b"")), _value(type_, entry.get(2, empty))


def _value(type_: Type, value: _Value) -> Any:
    """Read an element of a list or a map, which is there even when it is empty."""
    if type_.form == "object":
        found: Object = {}
        _read_message(type_, _bytes(value), found)
        return found
    return _scalar(type_, value)


# ---------------------------------------------------------------- scalars and their messages


def _scalar(type_: Type, value: _Value) -> Any:
    read = _SCALARS.get(type_.form)
    if read is None:
        raise _Malformed(f"a {type_.form} has no form in protobuf")
    return read(type_, value)


def _bytes(value: _Value) -> bytes:
    if isinstance(value, int):
        raise _Malformed("a number is where bytes belong")
    return value


def _text(value: _Value) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError as error:
        raise _Malformed("a text is not UTF-8") from error


def _number(value: _Value, bits: int = 64) -> int:
    """Return a varint as the signed integer it stands for."""
    if not isinstance(value, int):
        raise _Malformed("bytes are where a number belongs")
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _integer(type_: Type, value: _Value) -> int:
    return _number(value, 32 if type_.format == "int32" else 64)


def _moment(value: _Value) -> datetime | None:
    if not (parts := dict(_records(_bytes(value)))):
        return None  # how a time that was never set is written
    seconds, nanoseconds = _number(parts.get(1, 0)), _number(parts.get(2, 0), 32)
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(
            seconds=seconds, microseconds=nanoseconds // 1000
        )
    except OverflowError as error:
        raise _Malformed("a time is out of range") from error


def _time(value: _Value) -> str | None:
    moment = _moment(value)
    return None if moment is None else times.format_time(moment)


def _micro_time(value: _Value) -> str | None:
    moment = _moment(value)
    return None if moment is None else times.format_micro_time(moment)


def _quantity(value: _Value) -> str:
    return _text(dict(_records(_bytes(value))).get(1, b"")) or "0"


def _int_or_string(value: _Value) -> int | str:
    parts = dict(_records(_bytes(value)))
    return _text(parts.get(3, b"")) if _number(parts.get(1, 0)) else _number(parts.get(2, 0), 32)


def _raw_json(value: _Value) -> Any:
    raw = _bytes(dict(_records(_bytes(value))).get(1, b""))
    try:
        return msgspec.json.decode(raw) if raw else None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise _Malformed("an embedded object is not JSON") from error


_PACKED = ("integer", "boolean")
_SCALARS: dict[str, Callable[[Type, _Value], Any]] = {
    "string": lambda _, value: _text(value),
    "integer": _integer,
    "boolean": lambda _, value: _number(value) != 0,
    "bytes": lambda _, value: base64.b64encode(_bytes(value)).decode(),
    "quantity": lambda _, value: _quantity(value),
    "time": lambda _, value: _time(value),
    "microtime": lambda _, value: _micro_time(value),
    "intorstring": lambda _, value: _int_or_string(value),
    "any": lambda _, value: _raw_json(value),
    "object-any": lambda _, value: _raw_json(value),
}
