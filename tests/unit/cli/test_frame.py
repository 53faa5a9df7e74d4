"""What a command shows while it waits."""

from __future__ import annotations

import io
import sys

import pytest

from livevirt.cli.frame import waiting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_each_change_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("starting web") as tell:
        for state in ("Starting", "Starting", "Running"):
            tell(state)
    assert capsys.readouterr().err == "starting web: Starting\nstarting web: Running\n"


def test_given_a_clock_then_each_line_has_the_time_since_the_beginning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = iter([10.0, 10.25, 13.0])
    with waiting("migrating web", lambda: next(times)) as tell:
        for state in ("Pending", "Running", "Running"):
            tell(state)
    assert (
        capsys.readouterr().err
        == "migrating web: Pending (0.2 s)\nmigrating web: Running (3.0 s)\n"
    )


def test_on_a_terminal_the_line_is_redrawn_and_states_are_no_markup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with waiting("migrating web", lambda: 0.0) as tell:
        tell("Pending: [bold]as it is[/bold]")
    assert "migrating web: " in terminal.getvalue()
    assert "[bold]as it is[/bold]" in terminal.getvalue()
    assert "(0.0 s)" in terminal.getvalue()
