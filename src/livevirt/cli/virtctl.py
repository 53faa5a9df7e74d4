"""The command `virtctl`: what VM owners type."""

from __future__ import annotations

from typing import ClassVar

import click

from livevirt.cli import cluster, frame
from livevirt.cli.vm import absent


class Verbs(frame.LazyGroup, absent.Group):
    """KubeVirt's verbs, one module per group of them."""

    LAZY: ClassVar[dict[str, str]] = {
        verb: f"livevirt.cli.vm.{module}"
        for module, verbs in (  # in the order of the help
            ("lifecycle", ("start", "stop", "restart")),
            ("migrate", ("migrate", "migrate-cancel")),
            ("instance", ("pause", "unpause", "soft-reboot", "reset")),
            ("console", ("console",)),
            ("vnc", ("vnc",)),
            ("port_forward", ("port-forward",)),
            ("ssh", ("ssh", "scp")),
            ("usbredir", ("usbredir",)),
            ("expose", ("expose",)),
            ("instance", ("guestosinfo", "userlist", "fslist")),
            ("hotplug", ("addvolume", "removevolume", "cdrom")),
            ("plan", ("plan",)),
            ("why", ("why",)),
            ("create", ("create",)),
            ("customize", ("customize",)),
            ("plan", ("expand",)),
            ("fits", ("what-fits",)),
            ("resize", ("vm",)),
            ("version", ("version",)),
        )
        for verb in verbs
    } | {"completion": "livevirt.cli.completion:virtctl"}


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
    virtctl vm update-instance-type web u1.small --wait
    virtctl stop web --wait
    """


def main() -> None:
    """Run the command."""
    frame.run(cli)
