"""Tables that fit the terminal: 80 columns where its width is not known."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import click

_GAP = "  "
_INDENT = "    "
_MOST = 21  # characters of a cell in a narrow table; the first one of a row is never cut
_NARROWEST = 60


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a row, and a text that may take several lines."""

    cells: Sequence[str]
    text: str = ""
    colour: str = ""  # of the last cell


def echo(heads: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a table; with one head more than there are cells, the last is that of the texts."""
    width = max(_NARROWEST, shutil.get_terminal_size().columns)
    for line in lines(heads, rows, width):
        click.echo(line)


def lines(heads: Sequence[str], rows: Sequence[Row], width: int) -> Iterator[str]:
    """Yield the lines of a table that is no wider than `width`.

    A text that does not fit beside its cells is put below them, and cells that do not fit beside
    the first one are put below it.
    """
    count = len(rows[0].cells) if rows else len(heads)
    head = Row(heads[:count], " ".join(heads[count:]))
    most = max(_MOST, width // 4)
    shown = [head, *(replace(row, cells=_cut(row.cells, most)) for row in rows)]
    widths = [max(len(row.cells[at]) for row in shown) for at in range(count)]
    room = width - sum(len(_GAP) + each for each in widths[1:])
    fitting = [len(row.cells[0]) for row in shown if len(row.cells[0]) <= room]
    widths[0] = max(fitting, default=room)
    for row in shown:
        yield from _lines(row, widths, width)


def _lines(row: Row, widths: Sequence[int], width: int) -> Iterator[str]:
    first, *others = row.cells
    if len(first) > widths[0]:
        yield from textwrap.wrap(first, width, subsequent_indent=_INDENT)
        first = ""
    padded = [cell.ljust(size) for cell, size in zip((first, *others), widths, strict=True)]
    used = sum(widths) + len(_GAP) * len(widths)
    if row.colour:
        last = padded[-1].rstrip()
        padded[-1] = click.style(last, fg=row.colour) + padded[-1][len(last) :]
    beside = used + len(row.text) <= width
    line = _GAP.join([*padded, *([row.text] if row.text and beside else [])])
    if line.strip():
        yield line.rstrip()
    if row.text and not beside:
        yield from textwrap.wrap(
            row.text, width, initial_indent=_INDENT, subsequent_indent=_INDENT,
            break_on_hyphens=False,
        )  # fmt: skip


def _cut(cells: Sequence[str], most: int) -> list[str]:
    first, *others = cells
    return [first, *(cell if len(cell) <= most else f"{cell[: most - 1]}…" for cell in others)]
