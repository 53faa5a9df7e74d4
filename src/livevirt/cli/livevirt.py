"""The command `livevirt`: run and administer."""

from __future__ import annotations

from pathlib import Path

import click

from livevirt import __version__
from livevirt.cli import frame, process
from livevirt.paths import DataDir, default_data_dir
from livevirt.settings import Settings

_data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Where everything is kept (default: /var/lib/livevirt as root, else"
    " ~/.local/share/livevirt).",
)


def _data(given: Path | None) -> DataDir:
    return DataDir((given or default_data_dir()).absolute())


def _address(_: click.Context, __: click.Parameter, value: str) -> tuple[str, int]:
    host, _sep, port = value.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is not HOST:PORT, for example 127.0.0.1:6443")
    return host, int(port)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="livevirt")
def cli() -> None:
    """Run virtual machines that change while they run.

    \b
    livevirt up --detach              # start, in the background
    export KUBECONFIG=/var/lib/livevirt/kubeconfig
    kubectl get nodes
    livevirt down                     # stop; guests run on
    """


@cli.command()
@_data_dir
@click.option(
    "--listen", default="127.0.0.1:6443", show_default=True, callback=_address,
    metavar="HOST:PORT", help="Where to serve the API; port 0 takes any free one.",
)  # fmt: skip
@click.option(
    "--detach", is_flag=True, help="Return once the API answers; go on in the background."
)
@click.option(
    "--log-level", default="info", show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]), help="How much to log.",
)  # fmt: skip
def up(data_dir: Path | None, listen: tuple[str, int], detach: bool, log_level: str) -> None:
    """Start the API server, the controllers and the node agent.

    \b
    livevirt up                                   # in the foreground, Ctrl-C stops it
    livevirt up --detach --data-dir /tmp/lv       # somewhere else, in the background
    livevirt up --listen 127.0.0.1:0              # on any free port
    """
    data = _data(data_dir)
    host, port = listen
    settings = Settings(str(data.root), host, port, log_level)
    if detach:
        process.detach(data, settings)
    else:
        process.run(settings)


@cli.command()
@_data_dir
def down(data_dir: Path | None) -> None:
    """Stop the server of a data directory.

    \b
    livevirt down
    livevirt down --data-dir /tmp/lv
    """
    process.stop(_data(data_dir))


@cli.command()
@_data_dir
def status(data_dir: Path | None) -> None:
    """Tell whether the server runs, and where.

    \b
    livevirt status --data-dir /tmp/lv
    """
    process.show(_data(data_dir))


@cli.command()
def crds() -> None:
    """Print KubeVirt's CustomResourceDefinitions as livevirt serves them.

    \b
    livevirt crds > crds.yaml
    """
    import yaml

    from livevirt.api.crds import definitions

    click.echo(yaml.safe_dump_all(definitions(), sort_keys=False), nl=False)


def main() -> None:
    """Run the command."""
    frame.run(cli)
