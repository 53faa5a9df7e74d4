"""What is wrong with one field of an object, with Kubernetes' messages.

`message` is the text that follows `field: ` in a refusal, so `str(error)` is one line of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

__all__ = [
    "FieldError",
    "Struct",
    "duplicate",
    "forbidden",
    "invalid",
    "not_found",
    "not_supported",
    "quote",
    "render",
    "required",
    "too_long",
    "too_many",
    "type_invalid",
]


@dataclass(frozen=True, slots=True)
class FieldError:
    """One refused field; `reason` is the machine-readable cause of a `Status`."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class Struct(dict[str, Any]):
    """An object whose fields messages show in this order; those of a plain dict are sorted."""


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """The value is malformed, out of bounds, or may not change."""
    return _about(path, "FieldValueInvalid", f"Invalid value: {render(value)}", detail)


def type_invalid(path: str, value: Any, detail: str) -> FieldError:
    """The value is not of the type the schema asks for."""
    return _about(path, "FieldValueTypeInvalid", f"Invalid value: {render(value)}", detail)


def required(path: str, detail: str = "") -> FieldError:
    """The value is missing or empty."""
    return _about(path, "FieldValueRequired", "Required value", detail)


def forbidden(path: str, detail: str = "") -> FieldError:
    """The value is well-formed and not allowed here."""
    return _about(path, "FieldValueForbidden", "Forbidden", detail)


def not_supported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    """The value is not among the `supported` ones, which are listed in the order given."""
    listed = ", ".join(quote(each) for each in supported)
    detail = f"supported values: {listed}" if listed else ""
    return _about(path, "FieldValueNotSupported", f"Unsupported value: {render(value)}", detail)


def duplicate(path: str, value: Any) -> FieldError:
    """The value must be unique and is not."""
    return _about(path, "FieldValueDuplicate", f"Duplicate value: {render(value)}")


def not_found(path: str, value: Any) -> FieldError:
    """The value refers to something that does not exist."""
    return _about(path, "FieldValueNotFound", f"Not found: {render(value)}")


def too_long(path: str, limit: int) -> FieldError:
    """The value has more than `limit` bytes; it is left out of the message."""
    unit = "byte" if limit == 1 else "bytes"
    return _about(path, "FieldValueTooLong", "Too long", f"may not be more than {limit} {unit}")


def too_many(path: str, count: int, limit: int) -> FieldError:
    """The list has `count` items where `limit` are allowed."""
    unit = "item" if limit == 1 else "items"
    return _about(
        path, "FieldValueTooMany", f"Too many: {count}", f"must have at most {limit} {unit}"
    )


def _about(path: str, reason: str, head: str, detail: str = "") -> FieldError:
    return FieldError(path, reason, f"{head}: {detail}" if detail else head)


def render(value: Any) -> str:
    """The value as Go prints it in a message: `%q` strings, bare numbers, compact JSON."""
    match value:
        case str():
            return quote(value)
        case float():
            return _go_float(value)
        case _:
            return _json(value)


def quote(text: str) -> str:
    """The text between double quotes, escaped as Go's `%q` does."""
    return '"' + "".join(map(_quoted, text)) + '"'


_GO_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def _quoted(char: str) -> str:
    if char in _GO_ESCAPES:
        return _GO_ESCAPES[char]
    code = ord(char)
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"  # half of a pair: Go has already replaced it when reading the JSON
    if char.isprintable():
        return char
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _go_float(value: float) -> str:
    """A float on its own, by `%v`: exponents from a million on, unlike in JSON."""
    digits, exponent = _scientific(value)
    return _plain(value) if -4 <= exponent < 6 else f"{digits}e{exponent:+03d}"


def _json_float(value: float) -> str:
    digits, exponent = _scientific(value)
    return _plain(value) if -6 <= exponent < 21 else f"{digits}e{exponent:+d}"


def _plain(value: float) -> str:
    return format(Decimal(repr(value)), "f").removesuffix(".0")


def _scientific(value: float) -> tuple[str, int]:
    digits, _, exponent = format(Decimal(repr(value)).normalize(), "e").partition("e")
    return digits, int(exponent)


# Go's encoder also escapes what a browser could mistake for markup or a line end.
_JSON_ESCAPED = re.compile('["\\\\\x00-\x1f<>&\u2028\u2029\ud800-\udfff]')
_JSON_SHORT = {char: _GO_ESCAPES[char] for char in '"\\\b\f\n\r\t'}


def _json(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _json_float(value)
        case str():
            return '"' + _JSON_ESCAPED.sub(_json_escape, value) + '"'
        case dict():
            keys = value if isinstance(value, Struct) else sorted(value)
            members = (f"{_json(str(key))}:{_json(value[key])}" for key in keys)
            return "{" + ",".join(members) + "}"
        case list() | tuple():
            return "[" + ",".join(map(_json, value)) + "]"
        case _:
            return _json(str(value))


def _json_escape(found: re.Match[str]) -> str:
    char = found[0]
    if "\ud800" <= char <= "\udfff":
        return "\ufffd"
    return _JSON_SHORT.get(char) or f"\\u{ord(char):04x}"
