"""What both commands do before any command of theirs runs."""

from __future__ import annotations

import sys

import click
import pytest

from livevirt.cli import frame, livevirt, virtctl

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
