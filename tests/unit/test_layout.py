"""Unit tests lie in the folder that mirrors the package they test."""

from __future__ import annotations

from pathlib import Path

UNIT = Path(__file__).resolve().parent
SOURCE = UNIT.parents[1] / "src" / "livevirt"


def test_folders_of_unit_tests_mirror_src() -> None:
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("test_*.py")}
    unknown = {each for each in folders if not (SOURCE / each / "__init__.py").exists()}
    assert unknown == {Path("docs")}  # what the documentation promises belongs to no package
