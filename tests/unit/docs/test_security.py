"""Every guarantee and limit on the page about security names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text()
SECTIONS = ("Guarantees", "Limits")


def rows(section: str) -> list[list[str]]:
    """Return the cells of a section's table, without its heading."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("section", [each for each in SECTIONS if f"\n## {each}\n" in PAGE])
def test_every_row_names_a_test_that_exists(section: str) -> None:
    found = rows(section)
    assert found
    for row in found:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row[-1])
        assert named, row
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(), (file, test)
