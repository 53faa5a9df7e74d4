"""`virtctl ssh` and `virtctl scp`: the local ssh client, over a stream to a port of the guest."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NoReturn, TypeVar

import click

from livevirt.cli import cluster
from livevirt.cli.cluster import Chosen
from livevirt.cli.vm import target as targets
from livevirt.cli.vm.flags import Command
from livevirt.cli.vm.target import Target

F = TypeVar("F", bound=Callable[..., Any])

_USER_VARIABLES = ("USER", "USERNAME", "LOGNAME")


@dataclass(frozen=True, slots=True)
class Options:
    """The flags that both commands have."""

    username: str = ""
    identity_file: str = ""
    known_hosts: str = ""
    port: int = 22
    local_ssh_opts: tuple[str, ...] = ()


def _client_flags(command: F) -> F:
    """Give a command the flags of the local client."""
    for decorate in (
        click.option("-l", "--username", default="", help="The user to log in as (default: you)."),
        click.option("-i", "--identity-file", default="", metavar="FILE", help="The private key."),
        click.option(
            "--known-hosts", default="", metavar="FILE",
            help="The file with the keys of known guests (default: that of ssh).",
        ),
        click.option(
            "-p", "--port", type=click.IntRange(1, 65535), default=22, show_default=True,
            help="The port of the guest's SSH server.",
        ),
        click.option(
            "-t", "--local-ssh-opts", multiple=True, metavar="OPTION",
            help="An option for the local client, such as -t \"-o StrictHostKeyChecking=no\".",
        ),
        click.option("--local-ssh", is_flag=True, default=True, hidden=True, expose_value=False),
        cluster.flags(without=("--username",)),
    ):  # fmt: skip
        command = decorate(command)
    return command


@click.command(cls=Command)
@click.argument("target", metavar="[USER@]TYPE/NAME[/NAMESPACE]")
@click.option("-c", "--command", default="", help="Run this in the guest instead of a shell.")
@_client_flags
def ssh(target: str, command: str, **flags: Any) -> None:
    """Log in to a guest with the local ssh client.

    The client knows the guest as TYPE.NAME.NAMESPACE, in its file of known hosts too.

    \b
    virtctl ssh debian@vm/web
    virtctl ssh debian@vm/web -i ~/.ssh/id_ed25519 -c "uname -a"
    """
    options = Options(**flags)
    guest = _chosen(targets.parse_with_user(target))
    arguments = [_address(guest, options), *([command] if command else [])]
    _become("ssh", guest, options, arguments)


@click.command(cls=Command)
@click.argument("source")
@click.argument("destination")
@click.option("-r", "--recursive", is_flag=True, help="Copy whole directories.")
@click.option("--preserve", is_flag=True, help="Keep times and modes.")
@_client_flags
def scp(source: str, destination: str, recursive: bool, preserve: bool, **flags: Any) -> None:
    """Copy files to or from a guest with the local scp.

    One of SOURCE and DESTINATION is [USER@]TYPE/NAME[/NAMESPACE]:PATH.

    \b
    virtctl scp notes.txt debian@vm/web:notes.txt
    virtctl scp --recursive debian@vm/web:/var/log ./logs
    """
    options = Options(**flags)
    remote = [":" in each for each in (source, destination)]
    if sum(remote) != 1:
        raise click.UsageError(
            "one of SOURCE and DESTINATION must be in a guest, such as debian@vm/web:notes.txt"
        )
    named, _, path = (source if remote[0] else destination).partition(":")
    guest = _chosen(targets.parse_with_user(named))
    there = f"{_address(guest, options)}:{path}"
    copied = [there, destination] if remote[0] else [source, there]
    switches = [*(["-r"] if recursive else []), *(["-p"] if preserve else [])]
    _become("scp", guest, options, [*switches, *copied])


def _chosen(guest: Target) -> Target:
    """Return the guest with the namespace in which it is."""
    if guest.namespace:
        return guest
    return guest._replace(namespace=cluster.access(cluster.chosen()).namespace)


def _address(guest: Target, options: Options) -> str:
    """Return `user@host` for the client; the name of the host stays over restarts and nodes."""
    own = next((os.environ[each] for each in _USER_VARIABLES if os.environ.get(each)), "")
    user = guest.user or options.username or own
    return f"{user}@" * bool(user) + f"{guest.kind}.{guest.name}.{guest.namespace}"


def _become(program: str, guest: Target, options: Options, arguments: list[str]) -> NoReturn:
    """Replace this process by the client."""
    if shutil.which(program) is None:
        raise click.ClickException(f"there is no {program}: install the package openssh-client")
    ours = [sys.executable, "-c", "from livevirt.cli.virtctl import main; main()"]
    words = client(program, guest, options, proxy(ours, cluster.chosen(), guest, options.port))
    sys.stdout.flush()
    os.execvp(program, [*words, *arguments])


def proxy(ours: Sequence[str], choice: Chosen, guest: Target, port: int) -> str:
    """Return the command that connects its standard input and output to the guest's port.

    It reaches the same cluster as this command.
    """
    words = [*ours, "port-forward", "--stdio", f"{guest.kind}/{guest.name}/{guest.namespace}"]
    words.append(str(port))
    for field in fields(choice):
        value, flag = getattr(choice, field.name), f"--{field.name.strip('_').replace('_', '-')}"
        if field.name == "namespace" or not value:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, tuple):
            words += [f"{flag}={each}" for each in value]
        else:
            words.append(f"{flag}={value}")
    return shlex.join(words).replace("%", "%%")  # ssh expands %h and the like


def client(program: str, guest: Target, options: Options, proxy: str) -> list[str]:
    """Return the command line of the client, without its target."""
    words = [program, "-o", f"ProxyCommand={proxy}"]
    if options.known_hosts:
        words += ["-o", f"UserKnownHostsFile={options.known_hosts}"]
    for each in options.local_ssh_opts:
        words += shlex.split(each)
    if options.identity_file:
        words += ["-i", options.identity_file]
    return words
