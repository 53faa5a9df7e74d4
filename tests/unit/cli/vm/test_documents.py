"""Files and texts that people give by mistake: each is named, none ends in a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from livevirt.cli.virtctl import cli

VM = b"kind: VirtualMachine\nmetadata: "
WRONG = {
    "a disk": b"QFI\xfb\x00\x00\x00\x03",
    "no YAML": b"{",
    "a date that is none": b"metadata: {creationTimestamp: 2026-13-45}",
    "a number that is none": b"a: !!int x",
    "a switch that is none": b"a: !!bool x",
    "a key that is no text": VM + b"{name: web, labels: {on: x}}",  # YAML's word for true
    "a list in itself": VM + b"{name: web, labels: &a [*a]}",
    "another kind": b"kind: Pod",
}
COMMANDS = {"plan": ["plan", "-f"], "expand": ["expand", "-f"]}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_a_wrong_manifest_is_named(command: list[str], content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "wrong"
    file.write_bytes(content)
    done = CliRunner().invoke(cli, [*command, str(file)])
    assert isinstance(done.exception, SystemExit), done.exception
    assert f"Error: {file} " in done.output


def test_what_is_no_text_on_standard_input_is_refused() -> None:
    done = CliRunner().invoke(cli, ["plan", "-f", "-"], input=WRONG["a disk"])
    assert isinstance(done.exception, SystemExit), done.exception
    assert "Error: - is no text in UTF-8" in done.output


@pytest.mark.parametrize("patch", ["a: 2026-13-45", "{on: x}", "\udcff"])
def test_a_wrong_patch_is_told_from_a_wrong_file(patch: str) -> None:
    done = CliRunner().invoke(cli, ["plan", "web", "--patch", patch])
    assert isinstance(done.exception, SystemExit), done.exception
    assert "Error: --patch " in done.output


def test_a_password_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"\xff\xfe")
    done = CliRunner().invoke(cli, ["create", "vm", "--password-file", str(file)])
    assert isinstance(done.exception, SystemExit), done.exception
    assert f"Error: {file} is no text in UTF-8" in done.output
