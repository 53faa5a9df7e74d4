"""Amounts of CPU, memory and storage, exact, and written the way Kubernetes writes them.

A quantity is a whole number of billionths. Parsing rounds anything finer away from zero, so who
asks for a little gets something. Two quantities are equal when their amounts are: `512Mi` is
`0.5Gi`. The format (suffix family) only decides how an amount is written.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

import msgspec

__all__ = ["GIGA", "KILO", "MEGA", "MILLI", "ZERO", "Format", "Quantity", "QuantityError", "parse"]

MILLI, KILO, MEGA, GIGA = -3, 3, 6, 9
_NANO = -9
_UNIT = 10**9

_MAX_INT64 = 2**63 - 1
# Past these, Kubernetes would accept meaningless values and then spend minutes on it.
_MAX_DIGITS = 1000
_MAX_EXPONENT = 1000

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = ["", *_BINARY]

_MALFORMED = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_BAD_NUMBER = "unable to parse numeric part of quantity"
_BAD_SUFFIX = "unable to parse quantity's suffix"

_SHAPE = re.compile(
    r"(?P<sign>[+-]?)(?P<zeros>0*+)(?P<whole>[0-9]*+)(?:\.(?P<fraction>[0-9]*+))?"
    r"(?P<suffix>[eEinumkKMGTP]*+[-+]?[0-9]*+)"
)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,18})")


class QuantityError(ValueError):
    """The text is not a quantity; the message is the one Kubernetes gives."""


class Format(StrEnum):
    """The suffix family an amount is written in."""

    BINARY_SI = "BinarySI"  # 12Mi
    DECIMAL_SI = "DecimalSI"  # 12M
    DECIMAL_EXPONENT = "DecimalExponent"  # 12e6


class Quantity(msgspec.Struct, frozen=True, eq=False):
    """An exact amount of `nano` billionths."""

    nano: int
    format: Format = Format.DECIMAL_SI
    _written: str | None = None

    @classmethod
    def from_int(cls, value: int, format: Format = Format.DECIMAL_SI) -> Quantity:
        """A whole number of units: bytes, cores, pieces."""
        return cls(value * _UNIT, format)

    @classmethod
    def from_milli(cls, value: int, format: Format = Format.DECIMAL_SI) -> Quantity:
        """A whole number of thousandths."""
        return cls(value * (_UNIT // 1000), format)

    def value(self) -> int:
        """The amount in whole units, rounded away from zero."""
        return _divide_away(self.nano, _UNIT)

    @property
    def bytes(self) -> int:
        """The amount as a number of bytes, rounded away from zero."""
        return _divide_away(self.nano, _UNIT)

    def milli(self) -> int:
        """The amount in thousandths, rounded away from zero."""
        return self.scaled(MILLI)

    def scaled(self, scale: int) -> int:
        """The amount in units of 10**scale, rounded away from zero."""
        shift = scale - _NANO
        return self.nano * 10**-shift if shift < 0 else _divide_away(self.nano, 10**shift)

    def __str__(self) -> str:
        return self._written or _canonical(self.nano, self.format)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __bool__(self) -> bool:
        return self.nano != 0

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __ne__(self, other: object) -> bool:  # a struct does not derive it from __eq__
        return self.nano != other.nano if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nano)

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano

    def __le__(self, other: Quantity) -> bool:
        return self.nano <= other.nano

    def __gt__(self, other: Quantity) -> bool:
        return self.nano > other.nano

    def __ge__(self, other: Quantity) -> bool:
        return self.nano >= other.nano

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nano + other.nano, _common_format(self, other))

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nano - other.nano, _common_format(self, other))

    def __mul__(self, times: int) -> Quantity:
        return Quantity(self.nano * times, self.format)

    def __neg__(self) -> Quantity:
        return Quantity(-self.nano, self.format)


ZERO = Quantity(0)


def parse(value: str | int | float) -> Quantity:
    """The quantity a manifest's text or number stands for, or a `QuantityError`."""
    return _parse(value.strip() if isinstance(value, str) else repr(value))


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    shape = _SHAPE.fullmatch(text)
    if not text or shape is None:
        raise QuantityError(_MALFORMED)
    whole, fraction, suffix = shape["whole"] or "0", shape["fraction"] or "", shape["suffix"]
    format, exponent = _read_suffix(suffix)
    digits = whole + fraction
    if len(digits) > _MAX_DIGITS:
        raise QuantityError(_BAD_NUMBER)
    mantissa = int(digits)
    if format is Format.BINARY_SI:
        amount = _shift(mantissa << exponent, -len(fraction))
        fast = not fraction and 15 - len(whole) - exponent * 3 // 10 - 1 >= 0
        kept = fast and mantissa & 7 != 0
    else:
        scale = exponent - len(fraction)
        amount = _shift(mantissa, scale)
        fast = len(digits) <= 18 and scale >= _NANO
        kept = fast and scale % 3 == 0 and digits[0] != "0" and not digits.endswith("000")
    if not fast:
        if not (shape["zeros"] or shape["whole"] or fraction):
            raise QuantityError(_BAD_NUMBER)
        if format is Format.BINARY_SI:
            amount = min(amount, _MAX_INT64 * _UNIT)
            if 0 < amount < _UNIT:
                format = Format.DECIMAL_SI
    # Kubernetes keeps the text of a number it takes for canonical at a glance, so `1.500`
    # and `+5` come back as they were written. Clients compare texts: so do we.
    return Quantity(-amount if shape["sign"] == "-" else amount, format, text if kept else None)


def _read_suffix(suffix: str) -> tuple[Format, int]:
    if suffix in _DECIMAL:
        return Format.DECIMAL_SI, _DECIMAL[suffix]
    if suffix in _BINARY:
        return Format.BINARY_SI, _BINARY[suffix]
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None or int(exponent[1]) > _MAX_EXPONENT:
        raise QuantityError(_BAD_SUFFIX)
    # However much smaller, an amount is rounded up to one billionth all the same.
    return Format.DECIMAL_EXPONENT, max(int(exponent[1]), -_MAX_DIGITS - _MAX_EXPONENT)


def _common_format(one: Quantity, other: Quantity) -> Format:
    """Return the format of a sum: that of the first operand, unless it is zero."""
    return one.format if one.nano else other.format


def _shift(mantissa: int, scale: int) -> int:
    """The billionths in mantissa * 10**scale, rounded up."""
    shift = scale - _NANO
    return mantissa * 10**shift if shift >= 0 else _divide_away(mantissa, 10**-shift)


def _divide_away(number: int, divisor: int) -> int:
    """The quotient, rounded away from zero."""
    return -(-number // divisor) if number >= 0 else number // divisor


@lru_cache(maxsize=4096)
def _canonical(nano: int, format: Format) -> str:
    """The amount without a fraction and with the largest suffix that keeps it so."""
    if nano == 0:
        return "0"
    if format is Format.BINARY_SI:
        whole, rest = divmod(nano, _UNIT)
        if rest == 0 and abs(whole) >= 1024:
            return _in_powers_of_1024(whole)
        format = Format.DECIMAL_SI  # small or fractional amounts read better so
    # Kubernetes writes no suffix beyond E and so loses the amount; we stop at E.
    largest = max(_DECIMAL_SUFFIX) if format is Format.DECIMAL_SI else None
    mantissa, exponent = nano, _NANO
    while mantissa % 1000 == 0 and exponent != largest:
        mantissa //= 1000
        exponent += 3
    if format is Format.DECIMAL_SI:
        return f"{mantissa}{_DECIMAL_SUFFIX[exponent]}"
    return f"{mantissa}e{exponent}" if exponent else str(mantissa)


def _in_powers_of_1024(number: int) -> str:
    power = 0
    while number % 1024 == 0 and power < len(_BINARY):
        number //= 1024
        power += 1
    return f"{number}{_BINARY_SUFFIX[power]}"
