"""The pages that are generated or promise something say what is true now."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from livevirt.vm.migration.phases import ORDER

ROOT = Path(__file__).resolve().parents[3]


def test_the_pages_made_from_code_are_what_the_code_says() -> None:
    check = [sys.executable, ROOT / "tools" / "reference.py", "--check"]
    done = subprocess.run(check, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_every_command_and_kind_has_its_place() -> None:
    commands, kinds = (
        (ROOT / "docs" / page).read_text() for page in ("commands.md", "reference.md")
    )
    for heading in ("livevirt image import", "virtctl create preference", "virtctl fslist"):
        assert f"\n## {heading}\n" in commands
    for flag in ("--image-store", "--infer-preference-from", "--access-cred", "--paused", "--keep"):
        assert f"  {flag}" in commands
    assert "\n| VirtualMachine | virtualmachines |" in kinds


def test_every_make_target_is_explained() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    shown = subprocess.run(
        ["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[0] for line in shown.splitlines() if line[:1].isalpha()} >= targets


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")))
def test_every_local_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_file_the_readme_names_is_there() -> None:
    named = re.findall(
        r"`((?:docs|tests|src|tools)/[\w./-]+|[A-Z]+\.md)`", (ROOT / "README.md").read_text()
    )
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_server_imports_no_kubernetes_client() -> None:
    script = (
        "import sys, livevirt.main, livevirt.background;"
        "print([m for m in sys.modules if m.split('.')[0] in"
        " ('kubernetes', 'kubernetes_asyncio', 'lightkube', 'requests')])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_state_table_of_migrations_has_every_phase() -> None:
    page = (ROOT / "docs" / "migration.md").read_text()
    table = page.partition("<!-- generated: migration-phases -->")[2].partition("<!-- end -->")[0]
    for phase in (*ORDER[1:], "Failed"):
        assert f"\n| `{phase}` |" in table
