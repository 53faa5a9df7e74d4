"""The check on the size of classes and functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LIMITS = Path(__file__).parents[2] / "tools" / "limits.py"


def a_function(parameters: int, lines: int = 2, decorator: str = "") -> str:
    given = ", ".join(f"p{number}" for number in range(parameters))
    return decorator + f"def f({given}):\n" + "    x = 1\n" * (lines - 1)


def a_class(methods: int, first: str = "self") -> str:
    body = "".join(f"    def m{n}({first}, a, b, c, d, e, f): pass\n" for n in range(methods))
    return f"class C:\n{body}"


RULES: dict[str, tuple[str, list[str]]] = {
    "given six parameters, then fine": (a_function(6), []),
    "given seven, then not": (a_function(7), ["1: f has 7 parameters"]),
    "given keywords, then they count": (
        "async def f(a, b, c, *d, e, f, **g): pass", ["1: f has 7 parameters"],
    ),
    "given a command, then its flags do not": (a_function(9, 2, "@cli.command('x')\n"), []),
    "given another decorator, then they do": (
        a_function(9, 2, "@cached()\n"), ["2: f has 9 parameters"],
    ),
    "given a command of 61 lines, then not": (
        a_function(0, 61, "@click.command()\n"), ["2: f has 61 lines"],
    ),
    "given 60 lines, then fine": (a_function(1, 60), []),
    "given 61, then not": (a_function(1, 61), ["1: f has 61 lines"]),
    "given 20 methods of self and six, then fine": (a_class(20), []),
    "given 21, then not": (a_class(21, "cls"), ["1: class C has 21 methods"]),
    "given self outside a class, then it counts": (
        "def f(self, a, b, c, d, e, f): pass", ["1: f has 7 parameters"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("source", "found"), RULES.values(), ids=RULES)
def test_what_is_too_large_is_named_with_its_line(
    source: str, found: list[str], tmp_path: Path
) -> None:
    module = tmp_path / "below" / "module.py"
    module.parent.mkdir()
    module.write_text(source)
    ran = subprocess.run([sys.executable, LIMITS, tmp_path], capture_output=True, text=True)
    assert ran.returncode == bool(found), ran.stderr
    assert [line.partition(", more")[0] for line in ran.stdout.splitlines()] == [
        f"{module}:{text}" for text in found
    ]
