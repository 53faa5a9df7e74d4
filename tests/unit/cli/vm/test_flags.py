"""Flags that several commands have mean the same in all of them."""

from __future__ import annotations

import click
import pytest

from ..test_help import COMMANDS

TIMED = {
    path.removeprefix("virtctl "): command
    for path, command in COMMANDS.items()
    if any(param.name == "timeout" for param in command.params)
}
SECONDS = {"90": 90.0, "90s": 90.0, "5m": 300.0, "1m30s": 90.0, "1h": 3600.0, "0": None}
MINUTES = {"5": 300.0, "90s": 90.0, "5m": 300.0, "1m30s": 90.0, "1h": 3600.0, "0": 0.0}


def given(command: click.Command, *flags: str) -> object:
    """Return the timeout of a command with these flags and no more than it needs besides."""
    words = list(flags)
    for param in command.params:
        if param.required:
            words += ["x"] if isinstance(param, click.Argument) else [param.opts[0], "x"]
    return command.make_context("it", words).params["timeout"]


def test_all_that_wait_are_here() -> None:
    assert {"start", "stop", "restart", "migrate", "migrate-cancel", "console"} <= TIMED.keys()
    assert {"addvolume", "removevolume", "cdrom inject", "cdrom eject"} <= TIMED.keys()
    assert {"vm update-instance-type", "vm update-preference", "vm wait"} <= TIMED.keys()


@pytest.mark.parametrize(("name", "command"), TIMED.items(), ids=TIMED)
def test_every_timeout_is_a_duration(name: str, command: click.Command) -> None:
    assert given(command) == 300.0
    for text, length in (MINUTES if name == "console" else SECONDS).items():
        assert given(command, "--timeout", text) == length
    with pytest.raises(click.BadParameter, match="'soon' is no duration; write 30s or 1m30s"):
        given(command, "--timeout", "soon")


@pytest.mark.parametrize(("name", "command"), TIMED.items(), ids=TIMED)
def test_every_timeout_is_explained(name: str, command: click.Command) -> None:
    shown = " ".join(command.get_help(click.Context(command)).split())
    unit = "minutes" if name == "console" else "seconds"
    assert f"such as 90s or 1m30s; a plain number is {unit}" in shown
