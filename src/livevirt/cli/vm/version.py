"""`virtctl version`."""

from __future__ import annotations

import json

import click

from livevirt.cli import cluster
from livevirt.cli.vm.flags import Command
from livevirt.vm.kinds import support


@click.command(cls=Command)
@click.option("-c", "--client", is_flag=True, help="Ask no server.")
@cluster.flags()
def version(client: bool) -> None:
    """Print the versions of this command and of the server.

    \b
    virtctl version
    virtctl version --client
    """
    click.echo(f"Client Version: {support.text(support.info())}")
    if client:
        return
    from livevirt.cli.session import refusals, talk

    with refusals("{}"):
        answer = talk(lambda session: session.client.raw("GET", support.PATH))
    click.echo(f"Server Version: {support.text(json.loads(answer))}")
