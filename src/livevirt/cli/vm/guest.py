"""`virtctl guestosinfo`, `userlist` and `fslist`: what the guest's agent says."""

from __future__ import annotations

import json

import click

from livevirt.cli import cluster
from livevirt.cli.session import VMI, refusals, talk
from livevirt.cli.vm.flags import Command


def _show(vmi: str, verb: str, failing: str) -> None:
    with refusals(f"Error {failing} VirtualMachineInstance {vmi}, {{}}"):
        answer = talk(lambda session: session.ask("GET", VMI, vmi, verb))
    click.echo(json.dumps(json.loads(answer), indent=2, ensure_ascii=False))


@click.command(cls=Command)
@click.argument("vmi", metavar="VMI")
@cluster.flags()
def guestosinfo(vmi: str) -> None:
    """Show the guest's operating system, as its agent tells it.

    \b
    virtctl guestosinfo web
    """
    _show(vmi, "guestosinfo", "getting guestosinfo of")


@click.command(cls=Command)
@click.argument("vmi", metavar="VMI")
@cluster.flags()
def userlist(vmi: str) -> None:
    """List who is logged in to the guest.

    \b
    virtctl userlist web
    """
    _show(vmi, "userlist", "listing users of")


@click.command(cls=Command)
@click.argument("vmi", metavar="VMI")
@cluster.flags()
def fslist(vmi: str) -> None:
    """List the file systems mounted in the guest.

    \b
    virtctl fslist web
    """
    _show(vmi, "filesystemlist", "listing filesystems of")
