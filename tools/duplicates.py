"""Fail when `src` has more repeated blocks of code than it is allowed.

.venv/bin/python tools/duplicates.py [--list] [DIR...]  # exit 1 if there are more than LIMIT

A block is at least LINES consecutive lines that occur twice or more, compared without indentation,
blank lines, comments, docstrings and imports. Blocks that overlap count once.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

LINES = 6
LIMIT = 12  # lower it when you remove one; never raise it
ROOT = Path(__file__).resolve().parents[1]

Line = tuple[Path, int]  # a file and its line


def code(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that count, each with its number and without indentation."""
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if text or isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.stmt)
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number, line in enumerate(source.splitlines(), 1):
        plain = line.strip()
        if number not in skipped and plain and not plain.startswith("#"):
            yield number, plain


def blocks(files: dict[Path, str]) -> list[list[Line]]:
    """Return each repeated block as the places where it begins, in the order of the files."""
    lines = {path: list(code(source)) for path, source in files.items()}
    windows: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for path, found in lines.items():
        for start in range(len(found) - LINES + 1):
            text = tuple(plain for _, plain in found[start : start + LINES])
            if sum(map(len, text)) > LINES * 3:  # more than brackets
                windows[text].append((path, start))
    repeated: list[list[Line]] = []
    covered: set[tuple[Path, int]] = set()  # of windows that belong to a block already
    for places in windows.values():
        if len(places) < 2:
            continue
        if not all((path, start - 1) in covered for path, start in places):
            repeated.append([(path, lines[path][start][0]) for path, start in places])
        covered.update(places)
    return repeated


def main(arguments: list[str]) -> int:
    paths = [Path(each).resolve() for each in arguments if each != "--list"] or [ROOT / "src"]
    files = {file: file.read_text() for path in paths for file in sorted(path.rglob("*.py"))}
    found = blocks(files)
    if "--list" in arguments or len(found) > LIMIT:
        for places in found:
            print("  ".join(f"{path.relative_to(ROOT)}:{line}"
                            if path.is_relative_to(ROOT) else f"{path}:{line}"
                            for path, line in places))  # fmt: skip
    print(f"{len(found)} repeated blocks of {LINES} lines, at most {LIMIT} are allowed")
    return 1 if len(found) > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
