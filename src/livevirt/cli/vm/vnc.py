"""`virtctl vnc`: the screen of a guest, in a viewer or as a picture."""

from __future__ import annotations

import json
import shutil
import socket as sockets
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click

from livevirt.cli import cluster
from livevirt.cli.session import VMI, Session, refusals, talk
from livevirt.cli.vm import tunnel
from livevirt.cli.vm.flags import Command

_TYPES = ("remote-viewer", "tiger")
_PROGRAMS = {"remote-viewer": "remote-viewer", "tiger": "vncviewer"}  # in the order of preference


class Viewer(NamedTuple):
    """A VNC viewer of this machine."""

    type: str  # one of _TYPES
    program: str

    def command(self, port: int) -> list[str]:
        """Return the command that shows the screen served at a port of loopback."""
        address = f"127.0.0.1:{port}"
        # TigerVNC counts displays after one colon, and ports after two.
        target = f"vnc://{address}" if self.type == "remote-viewer" else address.replace(":", "::")
        return [self.program, target]


class _Screen(Command, click.Group):
    """`vnc VMI` and `vnc screenshot VMI`: a first word that is no subcommand names a guest."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Return the context of the subcommand, if one is named, else of the viewer."""
        first = next((word for word in args if not word.startswith("-")), "")
        below = self.commands.get(first)
        if below is None:
            return super().make_context(info_name, args, parent, **extra)
        own = click.Context(self, parent=parent, info_name=info_name)
        rest = [word for number, word in enumerate(args) if number != args.index(first)]
        return below.make_context(first, rest, own, **extra)


@click.group(
    cls=_Screen, invoke_without_command=True, no_args_is_help=True, subcommand_metavar="",
    context_settings={"allow_interspersed_args": True},
)  # fmt: skip
@click.argument("vmi", metavar="VMI")
@click.option(
    "--proxy-only", is_flag=True,
    help="Launch no viewer; print the port to which one can connect, as JSON.",
)  # fmt: skip
@click.option(
    "--address", default="127.0.0.1", show_default=True,
    help="Where to listen for a viewer with --proxy-only.",
)  # fmt: skip
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default="any free port",
    help="The port to listen on.",
)  # fmt: skip
@click.option(
    "--vnc-type", type=click.Choice(_TYPES), help="The kind of the viewer; needs --vnc-path."
)
@click.option("--vnc-path", metavar="PATH", help="The viewer to launch; needs --vnc-type.")
@cluster.flags()
def vnc(
    vmi: str, proxy_only: bool, address: str, port: int, vnc_type: str | None, vnc_path: str | None
) -> None:
    """Show the screen of a guest in a VNC viewer.

    The viewer is remote-viewer, else vncviewer, whichever is installed. A screen has one viewer: a
    new connection takes it over.

    \b
    virtctl vnc web
    virtctl vnc web --proxy-only --port=5901       # then: vncviewer 127.0.0.1::5901
    virtctl vnc screenshot web -f screen.png
    """
    viewer = None if proxy_only else _viewer(vnc_type, vnc_path)

    async def work(session: Session) -> str:
        screen = await tunnel.opened(session, session.path(VMI, vmi, "vnc"))
        listener = sockets.create_server(
            (address if proxy_only else "127.0.0.1", port),
            family=sockets.AF_INET6 if ":" in address and proxy_only else sockets.AF_INET,
        )
        chosen = listener.getsockname()[1]
        if viewer is None:
            click.echo(json.dumps({"port": chosen}, separators=(",", ":")))
            return await tunnel.relay(screen, *await tunnel.first_client(listener))
        return await tunnel.launched(viewer.command(chosen), listener, screen)

    with refusals(f"can't access VMI {vmi}: {{}}"):
        ended = talk(work)
    if ended:
        click.echo(f"You were disconnected from the screen: {ended}", err=True)
        raise click.exceptions.Exit(1)


@click.command(cls=Command)
@click.argument("vmi", metavar="VMI")
@click.option(
    "-f", "--file", required=True, metavar="FILE", help="Where to store the PNG image; - prints it."
)
@click.option(
    "-m", "--move-cursor", is_flag=True, help="Move the pointer first: ends screen savers."
)
@cluster.flags()
def screenshot(vmi: str, file: str, move_cursor: bool) -> None:
    """Store what the screen of a guest shows, as a PNG image. Viewers are not disturbed.

    \b
    virtctl vnc screenshot web -f screen.png
    """

    async def work(session: Session) -> bytes:
        options = {"moveCursor": "true"} if move_cursor else {}
        path = session.path(VMI, vmi, "vnc/screenshot")
        return await session.client.raw("GET", path, options=options)

    with refusals(f"can't access VMI {vmi}: {{}}"):
        image = talk(work)
    if file == "-":
        sys.stdout.buffer.write(image)
    else:
        Path(file).write_bytes(image)


vnc.add_command(screenshot)


def _viewer(type_: str | None, path: str | None) -> Viewer:
    if (type_ is None) != (path is None):
        raise click.UsageError("--vnc-type and --vnc-path must be given together")
    if type_ is not None and path is not None:
        if shutil.which(path) is None:
            raise click.UsageError(f"--vnc-path: there is no program {path}")
        return Viewer(type_, path)
    for each, program in _PROGRAMS.items():
        if shutil.which(program) is not None:
            return Viewer(each, program)
    raise click.ClickException(
        "there is no VNC viewer: install remote-viewer (package virt-viewer) or vncviewer, or run"
        " `virtctl vnc VMI --proxy-only` and connect a viewer to the port that it prints"
    )
