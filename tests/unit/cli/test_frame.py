"""What both commands do before any command runs, and what they show while one waits."""

from __future__ import annotations

import io
import sys

import click
import pytest

from livevirt.cli import frame, livevirt, virtctl
from livevirt.cli.frame import waiting

TREES = {"livevirt": livevirt.cli, "virtctl": virtctl.cli}


def typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    """Run a command line; return its exit status, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", list(words))
    with pytest.raises(SystemExit) as left:
        frame.run(TREES[words[0]])
    shown = capsys.readouterr()
    return int(left.value.code or 0), shown.out, shown.err


def groups() -> list[tuple[str, ...]]:
    """Return the command line of every group of commands."""
    found: list[tuple[str, ...]] = []
    for program, tree in TREES.items():
        found.append((program,))
        context = click.Context(tree)
        for name in tree.list_commands(context):
            if isinstance(tree.get_command(context, name), click.Group):
                found.append((program, name))
    return found


@pytest.mark.parametrize("words", groups(), ids=" ".join)
def test_given_no_command_then_the_help_is_printed_once_and_that_is_no_error(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = typed(monkeypatch, capsys, *words)
    assert (status, err) == (0, "")
    assert out.count("Usage: ") == 1
    assert out == typed(monkeypatch, capsys, *words, "--help")[1]


def test_given_an_unknown_command_then_it_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = typed(monkeypatch, capsys, "livevirt", "fly")
    assert (status, out) == (1, "")
    assert "fly" in err


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
