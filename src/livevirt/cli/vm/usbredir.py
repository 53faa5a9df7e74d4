"""`virtctl usbredir`: a USB device of this machine in a guest."""

from __future__ import annotations

import shutil
import socket as sockets

import click

from livevirt.cli import cluster
from livevirt.cli.session import VMI, Session, refusals, talk
from livevirt.cli.vm import tunnel
from livevirt.cli.vm.flags import Command

_CLIENT = "usbredirect"


@click.command(cls=Command)
@click.argument("words", metavar="[DEVICE] VMI", nargs=-1, required=True)
@click.option("--no-launch", is_flag=True, help="Launch no client; print where one can connect.")
@cluster.flags()
def usbredir(words: tuple[str, ...], no_launch: bool) -> None:
    """Redirect a USB device of this machine to a guest, until it is interrupted.

    DEVICE is VENDOR:PRODUCT or BUS-DEVICE, as lsusb shows them. The spec of the guest must have
    `clientPassthrough: {}` among its devices. A guest has four slots.

    \b
    virtctl usbredir 0951:1666 web
    virtctl usbredir --no-launch web
    """
    if len(words) != (1 if no_launch else 2):
        raise click.UsageError("name the device and the guest; with --no-launch the guest alone")
    if not no_launch and shutil.which(_CLIENT) is None:
        raise click.ClickException(
            f"there is no {_CLIENT}: install the package of that name, or run"
            " `virtctl usbredir --no-launch VMI` and connect a client to the address it prints"
        )
    vmi, device = words[-1], words[0]

    async def work(session: Session) -> str:
        slot = await tunnel.opened(session, session.path(VMI, vmi, "usbredir"))
        listener = sockets.create_server(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        if no_launch:
            click.echo(f"User can connect usbredir client at: {address}")
            return await tunnel.relay(slot, *await tunnel.first_client(listener))
        command = [_CLIENT, "--device", device, "--to", address]
        return await tunnel.launched(command, listener, slot)

    with refusals(f"can't access VMI {vmi}: {{}}"):
        ended = talk(work)
    if ended:
        click.echo(f"The device was disconnected: {ended}", err=True)
        raise click.exceptions.Exit(1)
