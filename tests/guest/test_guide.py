"""The guide's commands work, in its order, on a fresh data directory."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ..server_process import BIN, short_directory

pytestmark = [pytest.mark.guest, pytest.mark.slow]

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide.md"


def commands(page: str) -> list[str]:
    blocks = re.findall(r"```\n(.*?)```", page, re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_every_command_of_the_guide_does_what_it_says() -> None:
    lines = commands(GUIDE.read_text())
    assert len(lines) > 15
    with short_directory() as folder:
        folder.chmod(0o711)
        environment = {
            "PATH": f"{BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder),
            "DIR": str(folder / "d"),
            "LC_ALL": "C.UTF-8",
        }
        (folder / "d").mkdir(mode=0o711)
        script = "\n".join(
            ["set -euo pipefail", *(f"echo '+' {i}; {c}" for i, c in enumerate(lines))]
        )
        try:
            done = subprocess.run(
                ["bash", "-c", script], env=environment, cwd=folder, timeout=600,
                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            )  # fmt: skip
        finally:
            subprocess.run(
                [BIN / "livevirt", "down", "--guests", "stop", "--data-dir", folder / "d"],
                check=False, capture_output=True, timeout=120,
            )  # fmt: skip
    reached = re.findall(r"^\+ (\d+)$", done.stdout, re.MULTILINE)
    at = lines[int(reached[-1])] if reached else "the start"
    assert done.returncode == 0, f"stopped at: {at}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
