"""Replays what a real kube-apiserver answered; the recordings are not part of the project."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

GOLDEN = Path(__file__).resolve().parents[2] / "shared" / "golden"


def replayer() -> ModuleType:
    """Return the module that replays the recordings; skip the test where there are none."""
    file = GOLDEN / "replay.py"
    if not file.exists():
        pytest.skip("the recordings of a real kube-apiserver are not here")
    spec = importlib.util.spec_from_file_location("golden_replay", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def by_outcome(results: Sequence[Any]) -> dict[str, set[str]]:
    """Return the topics and names of cases by how they ended."""
    found: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
    for result in results:
        found[result.outcome].add(f"{result.topic}/{result.name}")
    return found


def problems(results: Sequence[Any], expected: Sequence[str] | set[str]) -> str:
    """Return what went wrong in the cases that should not have failed."""
    return "\n".join(
        f"{r.topic}/{r.name}: {r.why}\n" + "\n".join(r.problems)
        for r in results
        if r.outcome == "failed" and f"{r.topic}/{r.name}" not in expected
    )
