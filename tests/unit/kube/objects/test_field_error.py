"""Field errors read exactly as a kube-apiserver words them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects import field_error
from livevirt.kube.objects.field_error import FieldError, Struct, quote, render

WORDINGS = {
    "invalid": (
        field_error.invalid("metadata.name", "A", "must be lower case"),
        FieldError("metadata.name", "FieldValueInvalid", 'Invalid value: "A": must be lower case'),
    ),
    "type invalid": (
        field_error.type_invalid("spec.cores", "two", "must be an integer"),
        FieldError(
            "spec.cores", "FieldValueTypeInvalid", 'Invalid value: "two": must be an integer'
        ),
    ),
    "required": (
        field_error.required("metadata.name", "name or generateName is required"),
        FieldError(
            "metadata.name",
            "FieldValueRequired",
            "Required value: name or generateName is required",
        ),
    ),
    "required, without a detail": (
        field_error.required("spec"),
        FieldError("spec", "FieldValueRequired", "Required value"),
    ),
    "forbidden": (
        field_error.forbidden("metadata.namespace", "not allowed on this type"),
        FieldError(
            "metadata.namespace", "FieldValueForbidden", "Forbidden: not allowed on this type"
        ),
    ),
    "not supported": (
        field_error.not_supported("spec.policy", "Never", ["Always", "Once"]),
        FieldError(
            "spec.policy",
            "FieldValueNotSupported",
            'Unsupported value: "Never": supported values: "Always", "Once"',
        ),
    ),
    "not supported, none is": (
        field_error.not_supported("spec.policy", "Never", []),
        FieldError("spec.policy", "FieldValueNotSupported", 'Unsupported value: "Never"'),
    ),
    "duplicate": (
        field_error.duplicate("spec.disks[1].name", "root"),
        FieldError("spec.disks[1].name", "FieldValueDuplicate", 'Duplicate value: "root"'),
    ),
    "not found": (
        field_error.not_found("spec.volume", "root"),
        FieldError("spec.volume", "FieldValueNotFound", 'Not found: "root"'),
    ),
    "too long": (
        field_error.too_long("fieldManager", 128),
        FieldError("fieldManager", "FieldValueTooLong", "Too long: may not be more than 128 bytes"),
    ),
    "too long, for one byte": (
        field_error.too_long("x", 1),
        FieldError("x", "FieldValueTooLong", "Too long: may not be more than 1 byte"),
    ),
    "too many": (
        field_error.too_many("spec.items", 5, 3),
        FieldError("spec.items", "FieldValueTooMany", "Too many: 5: must have at most 3 items"),
    ),
    "too many, for one item": (
        field_error.too_many("spec.items", 2, 1),
        FieldError("spec.items", "FieldValueTooMany", "Too many: 2: must have at most 1 item"),
    ),
}


@pytest.mark.parametrize(("made", "expected"), WORDINGS.values(), ids=WORDINGS)
def test_wording(made: FieldError, expected: FieldError) -> None:
    assert made == expected


def test_an_error_reads_as_its_field_and_message() -> None:
    assert str(field_error.forbidden("spec", "no")) == "spec: Forbidden: no"


# Each line was printed by Go 1.26 (fmt and encoding/json).
RENDERED: list[tuple[Any, str]] = [
    ('a"b\\', r'"a\"b\\"'),
    ("é\u00a0\u200b\x7f\x01\n\t\a\v", '"é\\u00a0\\u200b\\x7f\\x01\\n\\t\\a\\v"'),
    ("\U000e0001😀\u2028", '"\\U000e0001😀\\u2028"'),
    ("'`\ufffd", '"\'`\ufffd"'),
    (None, "null"),
    (True, "true"),
    (-7, "-7"),
    (1.0, "1"),
    (1.5, "1.5"),
    (0.0, "0"),
    (100000.0, "100000"),
    (1000000.0, "1e+06"),
    (123456789.25, "1.2345678925e+08"),
    (1e100, "1e+100"),
    (0.0001, "0.0001"),
    (0.00001, "1e-05"),
    ([], "[]"),
    ({}, "{}"),
    ({"b": [1, "x"], "a": None}, '{"a":null,"b":[1,"x"]}'),
    (Struct(b=1, a={"d": 1, "c": 2}), '{"b":1,"a":{"c":2,"d":1}}'),
    (["\b\f\n\r\t\v\0"], r'["\b\f\n\r\t\u000b\u0000"]'),
    (["<>&\u2028\x7f"], r'["\u003c\u003e\u0026\u2028' + '\x7f"]'),
    ([1000000.0, 1e20, 1e21, 1e-6, 1e-7], "[1000000,100000000000000000000,1e+21,0.000001,1e-7]"),
    ([123456789.25, 0.00001, -2.5], "[123456789.25,0.00001,-2.5]"),
]


@pytest.mark.parametrize(("value", "expected"), RENDERED)
def test_values_are_rendered_as_go_prints_them(value: Any, expected: str) -> None:
    assert render(value) == expected


@given(st.text())
def test_given_any_text_when_quoted_then_the_message_stays_on_one_printable_line(text: str) -> None:
    quoted = quote(text)
    assert quoted.isprintable()
    assert quoted[0] == quoted[-1] == '"'


unicode = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | unicode,
    lambda inner: st.lists(inner) | st.dictionaries(unicode, inner),
)


@given(json_values)
def test_given_any_json_value_when_rendered_then_json_reads_it_back(value: Any) -> None:
    assert json.loads(render([value]), parse_int=float) == [value]
