"""What pip reads: the metadata and the two lock files fit each other."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
RUNTIME, DEVELOPMENT = ROOT / "requirements.lock", ROOT / "requirements-dev.lock"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def locked(file: Path) -> dict[str, str]:
    """Return the version of every package of a lock file."""
    entries = re.findall(r"^([\w.-]+)==(\S+) \\$", file.read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in entries}


@pytest.mark.parametrize("file", [RUNTIME, DEVELOPMENT], ids=lambda file: file.name)
def test_a_lock_file_has_versions_and_hashes_and_nothing_else(file: Path) -> None:
    entry = r"[\w.-]+==\S+(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    assert re.fullmatch(rf"#[^\n]*\n(?:{entry})+", file.read_text())


def test_the_lock_files_have_what_the_project_asks_for() -> None:
    asked = {
        RUNTIME: PROJECT["dependencies"],
        DEVELOPMENT: [*PROJECT["dependencies"], *EXTRAS["dev"]],
    }
    for file, requirements in asked.items():
        versions = locked(file)
        for requirement in map(Requirement, requirements):
            version = versions[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), f"{file.name}: run tools/lock"


def test_development_adds_to_what_livevirt_runs_with() -> None:
    runtime, development = locked(RUNTIME), locked(DEVELOPMENT)
    assert runtime.items() <= development.items()
    tools = {canonicalize_name(Requirement(each).name) for each in EXTRAS["dev"]}
    assert not tools & set(runtime)
    assert set(EXTRAS["kubectl"]) <= set(EXTRAS["dev"])


def test_every_command_is_there() -> None:
    for target in PROJECT["scripts"].values():
        module, _, name = target.partition(":")
        assert callable(getattr(import_module(module), name))


def test_setup_installs_by_hash() -> None:
    script = (ROOT / "tools" / "setup").read_text()
    installs = re.findall(r"pip install ((?:.*\\\n)*.*)", script)
    assert len(installs) == 2
    assert "--require-hashes" in installs[0]
    assert "-r requirements-dev.lock" in installs[0]
    assert "--no-deps --no-build-isolation -e ." in installs[1]
