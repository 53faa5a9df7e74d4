"""Quantities: exact amounts, Kubernetes' canonical texts."""

from __future__ import annotations

import json
import operator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.quantity import (
    GIGA,
    KILO,
    MILLI,
    ZERO,
    Format,
    Quantity,
    QuantityError,
    parse,
)

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "quantities.json").read_text()
)["cases"]
GOOD = [case for case in CASES if "error" not in case]
BAD = [case for case in CASES if "error" in case]


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case["text"])
def test_a_text_is_read_and_written_as_kubernetes_does(case: dict[str, Any]) -> None:
    quantity, other = parse(case["text"]), parse(case["other"])
    assert {
        "canonical": str(quantity),
        "format": quantity.format,
        "value": quantity.value(),
        "milli": quantity.milli(),
        "sum": str(quantity + other),
        "difference": str(quantity - other),
        "negated": str(-quantity),
        "order": (quantity > other) - (quantity < other),
    } == {key: case[key] for key in case.keys() - {"text", "other"}}


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["text"])
def test_a_text_that_is_no_quantity_is_refused_with_kubernetes_words(case: dict[str, Any]) -> None:
    with pytest.raises(QuantityError) as refusal:
        parse(case["text"])
    assert str(refusal.value) == case["error"]


CANONICAL = {
    "given a fraction, then the next smaller suffix": ("1.5Gi", "1536Mi"),
    "given a fraction of one, then thousandths": ("0.5", "500m"),
    "given a full step, then the larger suffix": ("1024Mi", "1Gi"),
    "given an exponent, then an exponent": ("1e3", "1e3"),
    "given decimal thousands, then the larger suffix": ("1000k", "1M"),
    "given less than a billionth, then a billionth": ("0.1n", "1n"),
    "given more than int64 in binary, then the cap": ("16Ei", "9223372036854775807"),
    "given spaces around it, then they are ignored": (" 1Gi\n", "1Gi"),
}


@pytest.mark.parametrize(("text", "canonical"), CANONICAL.values(), ids=CANONICAL)
def test_canonical_form(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


NUMBERS: list[tuple[int | float, str]] = [
    (0, "0"),
    (2, "2"),
    (4096, "4096"),
    (1.5, "1500m"),
    (1000.0, "1k"),
    (1e22, "10e21"),
]


@pytest.mark.parametrize(("number", "canonical"), NUMBERS)
def test_a_json_number_is_a_quantity_too(number: int | float, canonical: str) -> None:
    assert str(parse(number)) == canonical


@pytest.mark.parametrize("value", [True, float("nan"), float("inf")])
def test_what_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(QuantityError):
        parse(value)


def test_equal_amounts_are_equal_whatever_their_text() -> None:
    assert parse("512Mi") == parse("0.5Gi")
    assert hash(parse("1")) == hash(parse("1000m"))
    assert parse("1Gi") > parse("1G")
    assert sorted([parse("2"), parse("1500m"), parse("1e0")])[0] == parse("1")


def test_a_sum_is_written_like_its_left_side_unless_that_is_zero() -> None:
    assert str(parse("1Gi") + parse("1024M")) == "2048576Ki"
    assert str(parse("1Gi") + parse("1Gi")) == "2Gi"
    assert str(ZERO + parse("1Gi")) == "1Gi"
    assert str(ZERO - parse("1Gi")) == "-1Gi"


def test_amounts_beyond_the_largest_suffix_keep_their_digits() -> None:
    assert str(parse("1000E")) == "1000E"
    assert parse(str(parse("8Ei") * 4096)) < parse("8Ei") * 4096  # read again, it is capped
    assert str(Quantity.from_int(2**70, Format.BINARY_SI)) == "1024Ei"


@pytest.mark.parametrize("text", ["1e1001", "1e999999999999999999", "1" * 1001])
def test_absurd_sizes_are_refused_rather_than_computed(text: str) -> None:
    with pytest.raises(QuantityError):
        parse(text)


def test_an_absurdly_small_amount_is_a_billionth() -> None:
    assert str(parse("1e-999999999")) == "1e-9"


def test_amounts_are_rounded_away_from_zero() -> None:
    assert (parse("1500m").value(), parse("-1500m").value()) == (2, -2)
    assert parse("1.5Gi").bytes == 1610612736
    assert parse("1").milli() == 1000
    assert parse("1001").scaled(KILO) == 2
    assert parse("1Gi").scaled(GIGA) == 2
    assert parse("1n").scaled(-12) == 1000
    assert parse("100u").scaled(MILLI) == 1


amounts = st.integers(-(10**27), 10**27)
formats = st.sampled_from(Format)
quantities = st.builds(Quantity, amounts, formats)


@given(st.builds(Quantity, st.integers(-(2**63) + 1, 2**63 - 1), formats))
def test_given_any_quantity_when_written_and_read_then_it_is_the_same(quantity: Quantity) -> None:
    assert parse(str(quantity)) == quantity
    # Binary amounts that no power of 1024 divides are read back as decimal ones: 15625000, 15625k.
    written = str(parse(str(quantity)))
    assert str(parse(written)) == written


@given(quantities, quantities)
def test_arithmetic_is_exact(left: Quantity, right: Quantity) -> None:
    assert (left + right).nano == left.nano + right.nano
    assert (left + right) - right == left
    assert left + (-left) == ZERO


ORDERS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


@given(st.integers(-3, 3), formats, st.integers(-3, 3), formats)
def test_amounts_are_told_apart_and_ordered_whatever_their_format(
    one: int, form: Format, two: int, other: Format
) -> None:
    left, right = Quantity(one, form), Quantity(two, other)
    assert [order(left, right) for order in ORDERS] == [order(one, two) for order in ORDERS]
    assert left != right or hash(left) == hash(right)
    assert left != one


@given(quantities, st.integers(-12, 12))
def test_given_any_scale_when_rounded_then_never_towards_zero(
    quantity: Quantity, scale: int
) -> None:
    exact = abs(Fraction(quantity.nano, 10**9) / Fraction(10) ** scale)
    assert exact <= abs(quantity.scaled(scale)) < exact + 1


@given(st.integers(0, 2**52), st.sampled_from(["", "Ki", "Mi", "Gi"]))
def test_whole_bytes_survive_any_suffix(count: int, suffix: str) -> None:
    factor = 1024 ** ["", "Ki", "Mi", "Gi"].index(suffix)
    expected = min(count * factor, 2**63 - 1) if suffix else count
    assert parse(f"{count}{suffix}").bytes == expected


@given(st.text())
def test_given_any_text_then_it_is_a_quantity_or_refused(text: str) -> None:
    try:
        quantity = parse(text)
    except QuantityError:
        return
    assert parse(str(quantity)) == quantity
