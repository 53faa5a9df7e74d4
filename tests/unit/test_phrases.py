"""The check on phrases that the glossary lists as not to be used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PHRASES = ROOT / "tools" / "phrases.py"

RULES: dict[str, tuple[str, list[str]]] = {
    "given plain English, then fine": ('"""Return whether it is over."""', []),
    "given a phrase, then it is named with its line": (
        "x = 1\n# Nobody knows.\n", ['2: "Nobody": use the component or user by name'],
    ),
    "given it is part of a word, then fine": ("discard, undisclosed, shallow, retold", []),
    "given a method of that name, then fine": ("file.tell()", []),
    "given it goes over two lines, then it is found": (
        "# it is called\n# off when the guest ends\n", ['1: "called off": use cancelled'],
    ),
    "given a string over two lines, then it is found": (
        'x = (\n    "it was called"\n    " off"\n)\n', ['2: "called off": use cancelled'],
    ),
    "given a reason on the line, then fine": ('user = "nobody"  # phrase: a Unix account', []),
    "given two on a line, then both": (
        "the door tells", ['1: "door": use subresource, endpoint',
                           '1: "tells": use report, show, return'],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "found"), RULES.values(), ids=RULES)
def test_phrases_are_named_with_their_line(text: str, found: list[str], tmp_path: Path) -> None:
    module = tmp_path / "below" / "module.py"
    module.parent.mkdir()
    module.write_text(text)
    ran = subprocess.run([sys.executable, PHRASES, tmp_path], capture_output=True, text=True)
    assert ran.returncode == bool(found), ran.stderr
    assert ran.stdout.splitlines() == [f"{module}:{line}" for line in found]


def test_make_check_runs_it() -> None:
    assert "tools/phrases.py" in (ROOT / "Makefile").read_text()
