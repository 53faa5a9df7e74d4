"""Every module can be imported first: no import depends on the order of others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.glob("livevirt/**/*.py")
    if path.stem != "__main__"
)
PROGRAM = """
import importlib, sys
for name in sys.argv[1:]:
    for loaded in [each for each in sys.modules if each.split(".")[0] == "livevirt"]:
        del sys.modules[loaded]
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(f"{name}: {error}")
"""


@pytest.mark.slow
def test_every_module_can_be_imported_first() -> None:
    command = [sys.executable, "-c", PROGRAM, *MODULES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""


@pytest.mark.slow
def test_every_benchmark_can_be_imported() -> None:
    folder = ROOT / "benchmarks"
    command = [sys.executable, "-c", PROGRAM, *sorted(each.stem for each in folder.glob("*.py"))]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout == ""
