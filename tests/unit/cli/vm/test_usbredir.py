"""What `virtctl usbredir` needs to be told."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from livevirt.cli import virtctl


@pytest.mark.parametrize(
    "words", [["web"], ["--no-launch", "0951:1666", "web"], ["0951:1666", "web", "more"]]
)
def test_a_device_and_a_guest_are_named_or_a_guest_alone(words: list[str]) -> None:
    done = CliRunner().invoke(virtctl.cli, ["usbredir", *words])
    assert done.exit_code != 0
    assert "--no-launch" in done.output


def test_without_the_client_the_alternative_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(virtctl.cli, ["usbredir", "0951:1666", "web"])
    assert done.exit_code == 1
    assert "`virtctl usbredir --no-launch VMI`" in done.output
