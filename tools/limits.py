"""Fail on classes and functions of `src` that are too large to take over easily.

.venv/bin/python tools/limits.py [DIR...]  # exit 1 and name each with its file and line

Commands of the command-line tools take one parameter per flag, so their number is not limited.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

METHODS = 20  # of a class
LINES = 60  # of a function, its docstring included
PARAMETERS = 6  # of a function, `self` and `cls` not counted

ROOT = Path(__file__).resolve().parents[1]
_COMMANDS = ("command", "group")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def excesses(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line of everything in a module that exceeds a limit, and what it exceeds."""
    tree = ast.parse(source)
    methods = {
        each for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for each in node.body
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            count = sum(isinstance(each, _Function) for each in node.body)
            if count > METHODS:
                yield node.lineno, f"class {node.name} has {count} methods, more than {METHODS}"
        elif isinstance(node, _Function):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            parameters = _parameters(node, method=node in methods)
            if lines > LINES:
                yield node.lineno, f"{node.name} has {lines} lines, more than {LINES}"
            if parameters > PARAMETERS and not _is_command(node):
                text = f"{node.name} has {parameters} parameters, more than {PARAMETERS}"
                yield node.lineno, text


def _parameters(function: _Function, *, method: bool) -> int:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    if method and positional and positional[0].arg in ("self", "cls"):
        positional = positional[1:]
    variable = [each for each in (given.vararg, given.kwarg) if each is not None]
    return len(positional) + len(given.kwonlyargs) + len(variable)


def _is_command(function: _Function) -> bool:
    """Return whether a function is a click command: `@click.command()`, `@cli.command(...)`."""
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(called, ast.Attribute) and called.attr in _COMMANDS:
            return True
    return False


def main(paths: list[Path]) -> int:
    found = [
        f"{file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}:{line}: {text}"
        for path in paths
        for file in sorted(path.rglob("*.py"))
        for line, text in sorted(excesses(file.read_text()))
    ]
    for text in found:
        print(text)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main([Path(arg).resolve() for arg in sys.argv[1:]] or [ROOT / "src"]))
