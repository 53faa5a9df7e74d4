"""OpenAPI 2 made from OpenAPI 3, for clients that still ask for `/openapi/v2`.

kubectl reads it in protobuf: `openapi.v2.Document` of gnostic-models (`openapiv2/OpenAPIv2.proto`).
A table for each message we use names its fields by their key in JSON, in the order of their
numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

Object = dict[str, Any]


def convert(documents: Iterable[Object]) -> Object:
    """Return OpenAPI 3 documents as one Swagger 2.0 document."""
    info: Object = {}
    paths: Object = {}
    schemas: Object = {}
    for document in documents:
        info = document["info"]
        paths |= {path: _path(item) for path, item in document["paths"].items()}
        for name, schema in document["components"]["schemas"].items():
            schemas.setdefault(name, _schema(schema))
    return {"swagger": "2.0", "info": info, "paths": paths, "definitions": schemas}


def _path(item: Object) -> Object:
    found: Object = {
        method: _operation(operation)
        for method, operation in item.items()
        if method != "parameters"
    }
    found["parameters"] = [_parameter(p) for p in item.get("parameters", ())]
    return found


def _operation(operation: Object) -> Object:
    found = {
        name: value
        for name, value in operation.items()
        if name not in ("requestBody", "parameters", "responses")
    }
    parameters = [_parameter(p) for p in operation.get("parameters", ())]
    if body := operation.get("requestBody"):
        schema = next(iter(body["content"].values()))["schema"]
        parameters.insert(
            0,
            {
                "name": "body",
                "in": "body",
                "required": body["required"],
                "schema": _schema(schema),
            },
        )
        found["consumes"] = list(body["content"])
    found["parameters"] = parameters
    found["produces"] = ["application/json"]
    found["responses"] = {
        code: _response(response) for code, response in operation["responses"].items()
    }
    return found


def _response(response: Object) -> Object:
    found = {"description": response["description"]}
    if "content" in response:
        found["schema"] = _schema(next(iter(response["content"].values()))["schema"])
    return found


def _parameter(parameter: Object) -> Object:
    rest = {name: value for name, value in parameter.items() if name != "schema"}
    return {**rest, **parameter["schema"]}


def _schema(schema: Object) -> Object:
    """Return a schema in the older dialect: no allOf, no oneOf, no nullable.

    Its readers refuse fields that a type does not have, so what keeps them has no type.
    """
    is_open = schema.get("x-kubernetes-preserve-unknown-fields", False)
    found: Object = {}
    for name, value in schema.items():
        match name:
            case "allOf" if is_open:
                pass
            case "$ref":
                found[name] = value.replace("#/components/schemas/", "#/definitions/")
            case "allOf":
                found |= _schema(value[0])
            case "oneOf":
                found["type"] = "string"  # what both a number and a text can be written as
            case "nullable":
                pass
            case "properties":
                found[name] = {key: _schema(inner) for key, inner in value.items()}
            case "items" | "additionalProperties":
                found[name] = _schema(value)
            case _:
                found[name] = value
    return found


# ---------------------------------------------------------------- protobuf

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_EXTENSIONS = "x-"  # stands in a table for every key that begins so

Write = Callable[[int, Any], bytes]  # the number of a field and its value to bytes
Fields = Mapping[str, tuple[int, Write]]


def encode_protobuf(document: Object) -> bytes:
    """Return a Swagger document as a message. A key that has no field is a `KeyError`."""
    return _body(_DOCUMENT, document)


# ---------------------------------------------------------------- the wire


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())


def _flag(number: int, value: bool) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(int(value))


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | _FIXED64) + struct.pack("<d", value)


# ---------------------------------------------------------------- messages


def _body(fields: Fields, value: Object) -> bytes:
    """Return the fields of a message, without its own number and length."""
    plain = {key for key in value if not key.startswith(_EXTENSIONS)}
    if unknown := plain - fields.keys():
        raise KeyError(f"no field for {sorted(unknown)}")
    parts = [write(number, value[key]) for key, (number, write) in fields.items() if key in plain]
    if len(plain) < len(value):
        number, write = fields[_EXTENSIONS]
        parts.append(write(number, {key: value[key] for key in value if key not in plain}))
    return b"".join(parts)


def _message(fields: Fields) -> Write:
    return lambda number, value: _bytes(number, _body(fields, value))


def _inside(inner: int, write: Write) -> Write:
    """Write a message that has this one field only."""
    return lambda number, value: _bytes(number, write(inner, value))


def _each(write: Write) -> Write:
    return lambda number, values: b"".join(write(number, value) for value in values)


def _named(write: Write) -> Write:
    """Write a map: a message with a name and a value for each entry."""
    return lambda number, entries: b"".join(
        _bytes(number, _text(1, name) + write(2, value)) for name, value in entries.items()
    )


def _any(number: int, value: Any) -> bytes:
    """Write any value as YAML, which JSON is."""
    return _bytes(number, _text(2, msgspec.json.encode(value).decode()))


def _schema_message(number: int, value: Object) -> bytes:
    return _bytes(number, _body(_SCHEMA, value))


def _parameter_message(number: int, value: Object) -> bytes:
    """Write a parameter two oneofs deep: a parameter or a reference, in the body or elsewhere."""
    match value["in"]:
        case "body":
            write = _inside(1, _inside(1, _message(_BODY_PARAMETER)))
        case "query":
            write = _inside(1, _inside(2, _inside(3, _message(_QUERY_PARAMETER))))
        case "path":
            write = _inside(1, _inside(2, _inside(4, _message(_PATH_PARAMETER))))
        case other:
            raise KeyError(f"no message for a parameter in {other}")
    return write(number, value)


_SCHEMA: Fields = {
    "$ref": (1, _text),
    "format": (2, _text),
    "description": (4, _text),
    "default": (5, _any),
    "minimum": (9, _double),
    "required": (19, _each(_text)),
    "enum": (20, _each(_any)),
    "additionalProperties": (21, _inside(1, _schema_message)),
    "type": (22, _inside(1, _text)),
    "items": (23, _inside(1, _schema_message)),
    "properties": (25, _inside(1, _named(_schema_message))),
    _EXTENSIONS: (31, _named(_any)),
}
_BODY_PARAMETER: Fields = {
    "name": (2, _text),
    "in": (3, _text),
    "required": (4, _flag),
    "schema": (5, _schema_message),
}
_PATH_PARAMETER: Fields = {
    "required": (1, _flag),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (5, _text),
    "uniqueItems": (19, _flag),
}
_QUERY_PARAMETER: Fields = {
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (6, _text),
    "uniqueItems": (20, _flag),
}
_RESPONSE: Fields = {"description": (1, _text), "schema": (2, _inside(1, _schema_message))}
_OPERATION: Fields = {
    "tags": (1, _each(_text)),
    "operationId": (5, _text),
    "produces": (6, _each(_text)),
    "consumes": (7, _each(_text)),
    "parameters": (8, _each(_parameter_message)),
    "responses": (9, _inside(1, _named(_inside(1, _message(_RESPONSE))))),
    _EXTENSIONS: (13, _named(_any)),
}
_PATH: Fields = {
    "get": (2, _message(_OPERATION)),
    "put": (3, _message(_OPERATION)),
    "post": (4, _message(_OPERATION)),
    "delete": (5, _message(_OPERATION)),
    "patch": (8, _message(_OPERATION)),
    "parameters": (9, _each(_parameter_message)),
}
_DOCUMENT: Fields = {
    "swagger": (1, _text),
    "info": (2, _message({"title": (1, _text), "version": (2, _text)})),
    "paths": (8, _inside(2, _named(_message(_PATH)))),
    "definitions": (9, _inside(1, _named(_schema_message))),
}
