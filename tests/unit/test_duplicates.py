"""The check on repeated blocks of code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DUPLICATES = ROOT / "tools" / "duplicates.py"
BLOCK = [f"value_{n} = compute({n})" for n in range(6)]

CASES: dict[str, tuple[str, str, int]] = {
    "given the same six lines, then one block": ("\n".join(BLOCK), "\n".join(BLOCK), 1),
    "given five lines, then none": ("\n".join(BLOCK[:5]), "\n".join(BLOCK[:5]), 0),
    "given other lines between, then none": (
        "\n".join(BLOCK), "\n".join([*BLOCK[:3], "other = 1", *BLOCK[3:]]), 0,
    ),
    "given another indentation, comments and blank lines, then one": (
        "\n".join(BLOCK), "if x:\n    # why\n\n" + "\n".join(f"    {each}" for each in BLOCK), 1,
    ),
    "given a longer block, then still one": (
        "\n".join([*BLOCK, "one = 1", "two = 2"]), "\n".join([*BLOCK, "one = 1", "two = 2"]), 1,
    ),
    "given imports and docstrings, then none": (
        '"""\n' + "Text.\n" * 9 + '"""\n' + "import os, sys, json\n" * 9,
        '"""\n' + "Text.\n" * 9 + '"""\n' + "import os, sys, json\n" * 9, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other", "blocks"), CASES.values(), ids=CASES)
def test_repeated_blocks_are_counted(one: str, other: str, blocks: int, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(one)
    (tmp_path / "other.py").write_text(other)
    command = [sys.executable, DUPLICATES, "--list", tmp_path]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1].startswith(f"{blocks} repeated blocks")
    assert len(ran.stdout.splitlines()) == blocks + 1


def test_more_than_the_limit_fails_and_is_listed(tmp_path: Path) -> None:
    text = "\n\n".join("\n".join(f"v{m}_{n} = compute({m})" for n in range(6)) for m in range(99))
    (tmp_path / "one.py").write_text("\n\n".join(text.split("\n\n")))
    (tmp_path / "other.py").write_text("\n\n".join(reversed(text.split("\n\n"))))
    ran = subprocess.run([sys.executable, DUPLICATES, tmp_path], capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stdout.splitlines()[-1].startswith("99 repeated blocks")


def test_make_check_runs_it() -> None:
    assert "tools/duplicates.py" in (ROOT / "Makefile").read_text()
