"""Every command of both programs explains itself, with examples that can be typed."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from livevirt.cli import livevirt, virtctl

from ..docs.test_commands_in_docs import check_kubectl, check_ours, commands


def walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and all below it, each with the words that lead to it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from walk(f"{path} {name}", below)


COMMANDS = {**dict(walk("livevirt", livevirt.cli)), **dict(walk("virtctl", virtctl.cli))}


def test_the_commands_of_both_programs_are_found() -> None:
    assert {"livevirt volume import", "virtctl cdrom eject", "virtctl vm wait"} <= COMMANDS.keys()
    assert len(COMMANDS) > 40


@pytest.mark.parametrize(("path", "command"), COMMANDS.items(), ids=COMMANDS)
def test_a_command_explains_itself_with_examples(path: str, command: click.Command) -> None:
    shown = CliRunner().invoke(command, ["--help"], prog_name=path)
    assert shown.exit_code == 0
    usage, _, rest = shown.output.partition("\n\n")
    text = textwrap.dedent(rest.partition("\nOptions:\n")[0])
    assert usage.startswith(f"Usage: {path} ")
    assert re.search(rf"(^|<\(){path}( |$)", text, re.MULTILINE), "an example"
    for words in commands(f"```\n{text}\n```"):
        (check_kubectl if words[0] == "kubectl" else check_ours)(words)


@pytest.mark.parametrize(("path", "command"), COMMANDS.items(), ids=COMMANDS)
def test_every_flag_and_command_is_described(path: str, command: click.Command) -> None:
    assert command.help
    assert command.get_short_help_str()
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help, option.opts
