"""Which VNC viewer is launched, and how."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from livevirt.cli import virtctl
from livevirt.cli.vm import vnc
from livevirt.cli.vm.vnc import Viewer


def test_a_viewer_is_given_the_address_in_its_own_form() -> None:
    assert Viewer("tiger", "/v").command(5901) == ["/v", "127.0.0.1::5901"]
    assert Viewer("remote-viewer", "/v").command(5901) == ["/v", "vnc://127.0.0.1:5901"]


@pytest.mark.parametrize(
    ("installed", "chosen"),
    [
        (["remote-viewer", "vncviewer"], "remote-viewer"),
        (["vncviewer"], "vncviewer"),
    ],
)
def test_the_first_viewer_that_is_installed_is_launched(
    installed: list[str], chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in installed:
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert vnc._viewer(None, None).program == chosen


def test_without_a_viewer_the_alternative_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(click.ClickException, match="--proxy-only"):
        vnc._viewer(None, None)


@pytest.mark.parametrize("flags", [["--vnc-type=tiger"], ["--vnc-path=/bin/sh"]])
def test_type_and_path_of_a_viewer_go_together(flags: list[str]) -> None:
    done = CliRunner().invoke(virtctl.cli, ["vnc", "web", *flags])
    assert done.exit_code != 0
    assert "together" in done.output


def test_a_program_that_is_not_there_is_named() -> None:
    done = CliRunner().invoke(virtctl.cli, ["vnc", "web", "--vnc-type=tiger", "--vnc-path=/none"])
    assert "/none" in done.output


def test_the_first_word_may_be_a_subcommand() -> None:
    done = CliRunner().invoke(virtctl.cli, ["vnc", "screenshot", "--help"])
    assert done.exit_code == 0
    assert "PNG" in done.output
    assert "vnc screenshot" in done.output
