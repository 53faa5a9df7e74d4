"""The Swagger document in protobuf, read again with the field numbers of its `.proto`."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from livevirt.kube.server.openapi import documents
from livevirt.kube.server.openapi.swagger import encode_protobuf
from livevirt.vm.kinds import REGISTRY

DOCUMENT, SPEC = (
    documents.swagger_protobuf(REGISTRY),
    json.loads(documents.swagger(REGISTRY).plain()),
)
# Numbers of `openapi.v2` messages in gnostic-models.
SWAGGER, INFO, PATHS, DEFINITIONS = 1, 2, 8, 9
TEXTS = {1: "$ref", 2: "format", 4: "description"}  # of a schema


def number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def records(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, at = number(data, at)
        match tag & 7:
            case 0:
                value, at = number(data, at)
                yield tag >> 3, value
            case 1:
                yield tag >> 3, struct.unpack("<d", data[at : at + 8])[0]
                at += 8
            case 2:
                size, at = number(data, at)
                assert at + size <= len(data)
                yield tag >> 3, data[at : at + size]
                at += size
            case wire:
                pytest.fail(f"wire type {wire}")


def every(data: bytes, *path: int) -> list[Any]:
    """Return the values of a field, found by the numbers that lead to it."""
    found: list[Any] = [data]
    for wanted in path:
        found = [value for each in found for at, value in records(each) if at == wanted]
    return found


def one(data: bytes, *path: int) -> Any:
    (found,) = every(data, *path)
    return found


def named(data: bytes, *path: int) -> dict[str, bytes]:
    return {one(entry, 1).decode(): one(entry, 2) for entry in every(data, *path)}


def anything(data: bytes) -> Any:
    return json.loads(one(data, 2))  # its `yaml`


def schema(data: bytes) -> dict[str, Any]:
    """Return a schema as JSON has it."""
    found: dict[str, Any] = {}
    for at, value in records(data):
        match at:
            case 1 | 2 | 4:
                found[TEXTS[at]] = value.decode()
            case 5:
                found["default"] = anything(value)
            case 9:
                found["minimum"] = value
            case 19:
                found.setdefault("required", []).append(value.decode())
            case 20:
                found.setdefault("enum", []).append(anything(value))
            case 21:
                found["additionalProperties"] = schema(one(value, 1))
            case 22:
                found["type"] = one(value, 1).decode()
            case 23:
                found["items"] = schema(one(value, 1))
            case 25:
                properties = named(value, 1)
                found["properties"] = {name: schema(inner) for name, inner in properties.items()}
            case 31:
                found[one(value, 1).decode()] = anything(one(value, 2))
            case _:
                pytest.fail(f"a schema has the field {at}")
    return found


def test_the_document_holds_every_definition_that_the_json_form_has() -> None:
    data = DOCUMENT.plain()
    assert one(data, SWAGGER) == b"2.0"
    assert one(data, INFO, 1).decode() == SPEC["info"]["title"]
    assert one(data, INFO, 2).decode() == SPEC["info"]["version"]
    read = {name: schema(value) for name, value in named(data, DEFINITIONS, 1).items()}
    assert read == SPEC["definitions"]


def test_the_document_holds_every_operation_with_its_parameters() -> None:
    paths = named(DOCUMENT.plain(), PATHS, 2)
    assert list(paths) == list(SPEC["paths"])
    one_vm = "/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}"
    expected = SPEC["paths"][one_vm]
    patch = one(paths[one_vm], 8)
    assert one(patch, 5).decode() == expected["patch"]["operationId"]
    assert [text.decode() for text in every(patch, 7)] == expected["patch"]["consumes"]
    asked = [name.decode() for name in every(patch, 8, 1, 2, 3, 4)]  # those in the query
    assert asked == [p["name"] for p in expected["patch"]["parameters"] if p["in"] == "query"]
    assert schema(one(patch, 8, 1, 1, 5)) == {"type": "object"}  # the body
    extensions = {name: anything(value) for name, value in named(patch, 13).items()}
    assert extensions["x-kubernetes-action"] == "patch"
    assert extensions["x-kubernetes-group-version-kind"]["kind"] == "VirtualMachine"
    answers = named(patch, 9, 1)
    assert schema(one(answers["200"], 1, 2, 1)) == expected["patch"]["responses"]["200"]["schema"]
    in_path = [name.decode() for name in every(paths[one_vm], 9, 1, 2, 4, 4)]
    assert in_path == ["name", "namespace"]


def test_given_a_key_that_has_no_field_then_it_is_not_left_out_in_silence() -> None:
    with pytest.raises(KeyError, match="oneOf"):
        encode_protobuf({"definitions": {"a": {"oneOf": []}}})


def test_a_minimum_and_a_length_of_more_than_one_byte() -> None:
    given = {"description": "x" * 300, "minimum": -1.5}
    data = encode_protobuf({"definitions": {"a": given}})
    assert schema(named(data, DEFINITIONS, 1)["a"]) == given


def test_the_bytes_are_those_of_a_real_server() -> None:
    # What a Kubernetes 1.32 begins its document with.
    given = {"swagger": "2.0", "info": {"title": "Kubernetes", "version": "1.32"}}
    assert encode_protobuf(given) == b"\x0a\x032.0\x12\x12\x0a\x0aKubernetes\x12\x041.32"


def test_what_is_kept_in_memory_is_small() -> None:
    assert len(DOCUMENT.compressed) < 100_000
