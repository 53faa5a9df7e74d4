"""The command `virtctl`: what VM owners type."""

from __future__ import annotations

import importlib

import click

from livevirt.cli import cluster, frame

# Verb → the module that has it. Only the one that is asked for is imported.
_VERBS = {
    "start": "lifecycle",
    "stop": "lifecycle",
    "restart": "lifecycle",
    "pause": "instance",
    "unpause": "instance",
    "soft-reboot": "instance",
    "reset": "instance",
    "console": "console",
    "guestosinfo": "guest",
    "userlist": "guest",
    "fslist": "guest",
    "create": "create",
    "version": "version",
}


class Verbs(click.Group):
    """The verbs, in the order of the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name every verb."""
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb's command."""
        if cmd_name not in _VERBS:
            return None
        module = importlib.import_module(f"livevirt.cli.vm.{_VERBS[cmd_name]}")
        found: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return found


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
