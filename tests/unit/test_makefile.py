"""The Makefile, where it does more than name a command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OUTCOMES = {
    "all succeed": ("", 0),
    "the first fails": ("api", 2),
    "one in the middle fails": ("live", 2),
    "the last fails": ("migration", 2),
}


@pytest.mark.parametrize(("failing", "status"), OUTCOMES.values(), ids=OUTCOMES)
def test_bench_runs_all_and_fails_if_one_did(failing: str, status: int, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" != "benchmarks/{failing}.py" ]\n')
    python.chmod(0o755)
    make = ["make", "--old-file=setup", "bench", f"BIN={tmp_path}"]
    ran = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == status, ran.stderr
    listed = [line for line in ran.stdout.splitlines() if line.startswith("# benchmarks/")]
    assert len(listed) == 9
    assert all((ROOT / line.removeprefix("# ")).exists() for line in listed)
    assert (f"failed: {failing}" in ran.stderr) == bool(failing)
