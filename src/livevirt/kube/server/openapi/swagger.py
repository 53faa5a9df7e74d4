"""OpenAPI 2 made from OpenAPI 3: for clients that still ask for `/openapi/v2`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
