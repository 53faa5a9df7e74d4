"""Metric families and their text format, for parts that derive figures when asked for them.

A `Family` is declared once, as a constant, and carries its documentation. Nothing is kept between
two scrapes but histograms: a source returns the samples of its families on every scrape.
The text is written here because KubeVirt has counters whose names do not end in `_total`, which
prometheus_client cannot write, and because thousands of samples must not block the event loop.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Type = Literal["counter", "gauge", "histogram"]

#: Seconds; from what a live change takes to what a start or a migration may take.
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """One metric: its name, type, help and the names of its labels; compared by identity."""

    name: str
    type: Type
    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One value of a family; `labels` are in the order of the family's."""

    family: Family
    labels: tuple[str, ...]
    value: float


class Histogram:
    """Counts durations by labels. It belongs to the event loop's thread."""

    def __init__(self, family: Family, buckets: Sequence[float] = BUCKETS) -> None:
        self.family = family
        self._buckets = tuple(buckets)
        self._rows: dict[tuple[str, ...], list[float]] = {}

    def observe(self, labels: tuple[str, ...], seconds: float) -> None:
        """Count one duration; clocks that were set back make it zero, not negative."""
        row = self._rows.get(labels)
        if row is None:  # one number per bucket, the one beyond them, and the sum
            row = self._rows[labels] = [0] * (len(self._buckets) + 1) + [0.0]
        seconds = max(seconds, 0.0)
        row[bisect_left(self._buckets, seconds)] += 1
        row[-1] += seconds

    def lines(self) -> Iterator[str]:
        """Yield the lines of its samples."""
        name, bounds = self.family.name, [*map(_number, self._buckets), "+Inf"]
        for labels, row in self._rows.items():
            so_far = 0.0
            for bound, count in zip(bounds, row[:-1], strict=True):
                so_far += count
                pairs = _pairs((*self.family.labels, "le"), (*labels, bound))
                yield f"{name}_bucket{pairs} {_number(so_far)}\n"
            pairs = _pairs(self.family.labels, labels)
            yield f"{name}_sum{pairs} {_number(row[-1])}\n"
            yield f"{name}_count{pairs} {_number(so_far)}\n"


#: Returns the current samples.
Source = Callable[[], Awaitable[Iterable[Sample | Histogram]]]


def text(found: Iterable[Sample | Histogram]) -> str:
    """Return samples and histograms in Prometheus' text format, those of a family together."""
    families: dict[Family, list[str]] = {}
    for each in found:
        lines = families.setdefault(each.family, [])
        if isinstance(each, Histogram):
            lines += each.lines()
        else:
            pairs = _pairs(each.family.labels, each.labels)
            lines.append(f"{each.family.name}{pairs} {_number(each.value)}\n")
    return "".join(_heading(family) + "".join(lines) for family, lines in families.items())


def _heading(family: Family) -> str:
    text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {family.name} {text}\n# TYPE {family.name} {family.type}\n"


@functools.lru_cache(16384)  # most labels are the same at the next scrape, and in other families
def _pairs(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = ",".join(
        f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True)
    )
    return f"{{{pairs}}}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
