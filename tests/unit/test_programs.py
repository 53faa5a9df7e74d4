"""What is said on a machine without QEMU, or without all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from livevirt import programs
from livevirt.programs import PACKAGES, ProgramMissing

ROOT = Path(__file__).resolve().parents[2]
INSTALL = "apt-get install --no-install-recommends"
MISSING = {
    "nothing is there": (
        (),
        "qemu-system-x86_64 and qemu-img are not installed. As root on Debian or Ubuntu:"
        f" {INSTALL} qemu-system-x86 qemu-utils",
    ),
    "qemu-img is missing": (
        ("qemu-system-x86_64",),
        f"qemu-img is not installed. As root on Debian or Ubuntu: {INSTALL} qemu-utils",
    ),
}


def install(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize(("there", "said"), MISSING.values(), ids=MISSING)
def test_what_is_missing_is_named_with_its_packages(
    there: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, *there)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramMissing, match=f"^{re.escape(said)}$"):
        programs.check()


def test_a_machine_with_all_of_it_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, *PACKAGES)
    monkeypatch.setenv("PATH", str(tmp_path))
    programs.check()


def test_setup_installs_the_packages_that_are_named() -> None:
    wanted = re.findall(
        r"^ *command -v (qemu-\S+) .*missing\+=\((\S+)\)$",
        (ROOT / "tools" / "setup").read_text(),
        re.MULTILINE,
    )
    assert dict(wanted) == PACKAGES
