"""The command `virtctl`: what VM owners type."""

from __future__ import annotations

from typing import ClassVar

import click

from livevirt.cli import cluster, frame

_VM = "livevirt.cli.vm"


class Verbs(frame.LazyGroup):
    """The verbs of VM owners."""

    LAZY: ClassVar[dict[str, str]] = {
        "start": f"{_VM}.lifecycle",
        "stop": f"{_VM}.lifecycle",
        "restart": f"{_VM}.lifecycle",
        "pause": f"{_VM}.instance",
        "unpause": f"{_VM}.instance",
        "soft-reboot": f"{_VM}.instance",
        "reset": f"{_VM}.instance",
        "console": f"{_VM}.console",
        "guestosinfo": f"{_VM}.guest",
        "userlist": f"{_VM}.guest",
        "fslist": f"{_VM}.guest",
        "create": f"{_VM}.create",
        "version": f"{_VM}.version",
    }


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@cluster.flags(all_shown=True)
def cli() -> None:
    """Control virtual machines.

    The cluster is the one of --kubeconfig, else of $KUBECONFIG, else the server of livevirt's
    default data directory, else the one kubectl uses.

    \b
    virtctl create vm --name web --volume-containerdisk src:livevirt/guest:latest \\
      | kubectl apply -f -
    virtctl console web               # Ctrl+] leaves
    virtctl stop web --wait
    """


def main() -> None:
    """Run the command."""
    frame.run(cli)
