"""Timestamps and durations as the API writes them.

`Time` has seconds, `MicroTime` six digits, both in UTC with a `Z`. Durations are Go's (`1h0m0s`);
people are shown ages (`2d3h`) as kubectl shows them. Nothing here reads the clock.
"""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime, timedelta

__all__ = [
    "TimeError",
    "age",
    "format_duration",
    "format_micro_time",
    "format_time",
    "human_duration",
    "normalise_duration",
    "normalise_micro_time",
    "normalise_time",
    "parse_duration",
    "parse_micro_time",
    "parse_time",
]


_KEPT = 4096  # timestamps read once: objects made together share theirs


class TimeError(ValueError):
    """The text is no timestamp or duration; the message is the one Go gives."""


def format_time(moment: datetime) -> str:
    """`2026-01-02T03:04:05Z`; what is finer than a second is cut off."""
    return f"{_utc(moment).isoformat()[:19]}Z"


def format_micro_time(moment: datetime) -> str:
    """`2026-01-02T03:04:05.000006Z`."""
    return f"{_utc(moment):%Y-%m-%dT%H:%M:%S.%f}Z".rjust(27, "0")


@functools.lru_cache(maxsize=_KEPT)
def parse_time(text: str) -> datetime:
    """The moment in UTC; any number of fraction digits is understood, six are kept."""
    return _parse_rfc3339(text, _TIME, "2006-01-02T15:04:05Z07:00")


def parse_micro_time(text: str) -> datetime:
    """The moment in UTC; exactly six fraction digits are required."""
    return _parse_rfc3339(text, _MICRO_TIME, "2006-01-02T15:04:05.000000Z07:00")


@functools.lru_cache(maxsize=_KEPT)
def normalise_time(text: str) -> str:
    """The timestamp as a kube-apiserver gives it back."""
    return format_time(parse_time(text))


def normalise_micro_time(text: str) -> str:
    """The timestamp with microseconds as a kube-apiserver gives it back."""
    return format_micro_time(parse_micro_time(text))


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is UTC:
        return moment
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone")
    return moment.astimezone(UTC)


# Each element of Go's layout, and what it takes. Go lets an hour have one digit.
_DATE = [
    ("2006", "(?P<year>[0-9]{4})"),
    ("-", "-"),
    ("01", "(?P<month>[0-9]{2})"),
    ("-", "-"),
    ("02", "(?P<day>[0-9]{2})"),
    ("T", "T"),
    ("15", "(?P<hour>[0-9]{1,2})"),
    (":", ":"),
    ("04", "(?P<minute>[0-9]{2})"),
    (":", ":"),
]
_ZONE = [("Z07:00", "Z|(?P<sign>[+-])(?P<zone_hour>[0-9]{2}):(?P<zone_minute>[0-9]{2})")]
_TIME = [*_DATE, ("05", r"(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?"), *_ZONE]
_MICRO_TIME = [
    *_DATE,
    ("05", "(?P<second>[0-9]{2})"),
    (".000000", r"[.,](?P<fraction>[0-9]{6})"),
    *_ZONE,
]
_RANGES = {
    "month": ("month", range(1, 13)),
    "hour": ("hour", range(24)),
    "minute": ("minute", range(60)),
    "second": ("second", range(60)),
    "zone_hour": ("time zone offset hour", range(25)),
    "zone_minute": ("time zone offset minute", range(61)),
}


def _parse_rfc3339(text: str, elements: list[tuple[str, str]], layout: str) -> datetime:
    at, found = 0, dict[str, str]()
    for element, pattern in elements:
        taken = re.compile(pattern).match(text, at)
        if taken is None:
            raise TimeError(
                f"parsing time {_quote(text)} as {_quote(layout)}: "
                f"cannot parse {_quote(text[at:])} as {_quote(element)}"
            )
        at = taken.end()
        found |= {name: value or "" for name, value in taken.groupdict().items()}
        for name in taken.groupdict().keys() & _RANGES.keys():
            what, allowed = _RANGES[name]
            if found[name] and int(found[name]) not in allowed:
                raise TimeError(f"parsing time {_quote(text)}: {what} out of range")
    if at < len(text):
        raise TimeError(f"parsing time {_quote(text)}: extra text: {_quote(text[at:])}")
    return _moment(text, found)


def _moment(text: str, found: dict[str, str]) -> datetime:
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"])
    zone = timedelta(hours=int(found["zone_hour"] or "0"), minutes=int(found["zone_minute"] or "0"))
    since_midnight = timedelta(
        hours=int(found["hour"]),
        minutes=int(found["minute"]),
        seconds=int(found["second"]),
        microseconds=int(f"{found['fraction']:0<6.6}"),
    )
    try:
        midnight = datetime(year, month, day, tzinfo=UTC)
    except ValueError:
        what = "day" if year else "year"  # Go knows a year 0, Python does not
        raise TimeError(f"parsing time {_quote(text)}: {what} out of range") from None
    try:
        return midnight + since_midnight + (zone if found["sign"] == "-" else -zone)
    except OverflowError:
        raise TimeError(f"parsing time {_quote(text)}: year out of range") from None


def _quote(text: str) -> str:
    """The text as Go's time package quotes it: byte by byte, with no short escapes."""
    return '"' + "".join(map(_quoted, text.encode(errors="replace"))) + '"'


def _quoted(byte: int) -> str:
    if not 0x20 <= byte < 0x80:
        return f"\\x{byte:02x}"
    return f"\\{byte:c}" if byte in b'"\\' else chr(byte)


_UNITS = {
    "ns": 1,
    "us": 1000,
    "\u00b5s": 1000,  # micro sign
    "\u03bcs": 1000,  # Greek letter mu
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<unit>[^.0-9]*)")
_MAX_DURATION = 2**63 - 1


def parse_duration(text: str) -> timedelta:
    """How long Go's `1h30m`, `1.5s` or `-2ms` is, to the microsecond."""
    nanoseconds = _parse_duration(text)
    return timedelta(microseconds=abs(nanoseconds) // 1000) * (-1 if nanoseconds < 0 else 1)


def format_duration(duration: timedelta) -> str:
    """The duration as Go prints it: `1h0m0s`, `1m30.5s`, `20ms`, `0s`."""
    return _format_duration(duration // timedelta(microseconds=1) * 1000)


def normalise_duration(text: str) -> str:
    """The duration as a kube-apiserver gives it back: `90m` becomes `1h30m0s`."""
    return _format_duration(_parse_duration(text))


def _parse_duration(text: str) -> int:
    invalid = TimeError(f"time: invalid duration {_quote(text)}")
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        raise invalid
    total, at = 0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        assert part is not None  # each of its pieces may be empty
        whole, fraction, unit = part["whole"], part["fraction"] or "", part["unit"]
        if not (whole or fraction) or len(whole.lstrip("0")) > 19:
            raise invalid
        if not unit:
            raise TimeError(f"time: missing unit in duration {_quote(text)}")
        if unit not in _UNITS:
            raise TimeError(f"time: unknown unit {_quote(unit)} in duration {_quote(text)}")
        total += int(whole or "0") * _UNITS[unit] + _fraction(fraction, _UNITS[unit])
        at = part.end()
        if total > _MAX_DURATION + (sign < 0):
            raise invalid
    return sign * total


def _fraction(digits: str, unit: int) -> int:
    """The nanoseconds in 0.digits of a unit, in floating point as Go has it."""
    number, scale = 0, 1.0
    for digit in digits:
        if number > _MAX_DURATION // 10:
            break  # more than a float can distinguish
        number = number * 10 + int(digit)
        scale *= 10
    return int(number * (unit / scale))


def _format_duration(nanoseconds: int) -> str:
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest == 0:
        return "0s"
    for unit, size in (("ns", 1), ("\u00b5s", 1000), ("ms", 10**6)):
        if rest < size * 1000:
            return f"{sign}{_decimal(rest, size)}{unit}"
    minutes, rest = divmod(rest, _UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{head}{_decimal(rest, _UNITS['s'])}s"


def _decimal(number: int, unit: int) -> str:
    whole, rest = divmod(number, unit)
    fraction = f"{rest:0{len(str(unit)) - 1}}".rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def age(timestamp: str | None, now: datetime) -> str:
    """The time since a timestamp for kubectl's AGE column."""
    return human_duration(now - parse_time(timestamp)) if timestamp else "<unknown>"


def human_duration(duration: timedelta) -> str:
    """The duration to two or three figures: `5s`, `3m20s`, `5h`, `2d3h`, `400d`, `2y10d`."""
    if duration <= timedelta(seconds=-2):
        return "<invalid>"
    seconds = max(duration // timedelta(seconds=1), 0)  # clocks may differ by a second or two
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"
