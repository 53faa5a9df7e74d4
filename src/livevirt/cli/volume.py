"""`livevirt volume`: fill claims from files of this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from livevirt.cli import process
from livevirt.paths import DataDir, default_data_dir


@click.group()
def volume() -> None:
    """Fill persistent volume claims.

    \b
    livevirt volume import ./debian.qcow2 --pvc debian --size 20Gi
    """


@volume.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--pvc", "claim", required=True, help="The claim to fill; made if it is not there.")
@click.option("--size", default=None, help="Size of a new claim (default: that of the disk).")
@click.option("-n", "--namespace", default="default", show_default=True, help="Its namespace.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="The data directory of the running livevirt.",
)
def import_(
    file: Path, claim: str, size: str | None, namespace: str, data_dir: Path | None
) -> None:
    """Fill a claim from an ISO, qcow2 or raw file.

    \b
    livevirt volume import ./debian.qcow2 --pvc debian --size 20Gi
    livevirt volume import ./drivers.iso --pvc drivers -n team
    """
    from rich.console import Console
    from rich.progress import Progress

    from livevirt.cli import volume_import

    data = DataDir((data_dir or default_data_dir()).absolute())
    if process.running_pid(data) is None:
        raise click.ClickException(
            f"livevirt does not run on {data.root}. Start it: livevirt up --data-dir {data.root}"
        )
    request = volume_import.ImportRequest(file.absolute(), namespace, claim, size)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"importing {file.name}", total=100.0)

        def show(done: float) -> None:
            bar.update(task, completed=done)

        asyncio.run(volume_import.run(data, request, show))
    click.echo(f"imported {file.name} into claim {namespace}/{claim}")
