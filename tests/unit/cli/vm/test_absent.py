"""Commands of KubeVirt's virtctl are there, or the answer names another way."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from livevirt.cli import virtctl
from livevirt.cli.vm.absent import ABSENT

from ...docs.test_commands_in_docs import check_kubectl, check_ours, commands

#: The commands of KubeVirt's virtctl 1.7, and the two it used to have for interfaces.
UPSTREAM = """
    addinterface|addvolume|adm|completion|config ssh|console|create|create clone|create instancetype
    create preference|create vm|credentials|evacuate-cancel|expand|expose|fslist|guestfs|guestosinfo
    image-upload|memory-dump|migrate|migrate-cancel|objectgraph|options|pause|permitted-devices
    port-forward|removeinterface|removevolume|reset|restart|scp|soft-reboot|ssh|start|stop|template
    unpause|usbredir|userlist|version|vmexport|vnc
"""
NAMES = [name.strip() for line in UPSTREAM.split("\n") for name in line.split("|") if name.strip()]


def is_there(name: str) -> bool:
    command: click.Command | None = virtctl.cli
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
        if command is None:
            return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_command_of_kubevirts_is_there_or_known_to_be_absent(name: str) -> None:
    assert is_there(name) != (name in ABSENT)


@pytest.mark.parametrize("name", ABSENT)
def test_given_an_absent_command_then_the_answer_names_another_way(name: str) -> None:
    for words in (name.split(), [*name.split(), "web", "--flag"]):
        done = CliRunner().invoke(virtctl.cli, words)
        assert done.exit_code == 1
        assert ABSENT[name].why in done.output
        assert ABSENT[name].instead in done.output


@pytest.mark.parametrize("name", ABSENT)
def test_what_is_to_be_used_instead_can_be_typed(name: str) -> None:
    assert name in NAMES
    instead = ABSENT[name].instead
    found = commands(instead)
    assert found or "`virtctl`" in instead
    for words in found:
        (check_kubectl if words[0] == "kubectl" else check_ours)(words)
