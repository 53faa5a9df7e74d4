"""`livevirt volume`: fill claims from files of this machine."""

from __future__ import annotations

from pathlib import Path

import click

from livevirt.cli import cluster, process
from livevirt.files.raw_file import Directories
from livevirt.paths import DataDir


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
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="The data directory of the server (default: that of the server virtctl would use).",
)
@cluster.flags()
def import_(file: Path, claim: str, size: str | None, data_dir: Path | None) -> None:
    """Fill a claim from an ISO, qcow2 or raw file.

    The server is found as virtctl finds it and must run on this machine: the disk is written to its
    data directory.

    \b
    livevirt volume import ./debian.qcow2 --pvc debian --size 20Gi
    livevirt volume import ./drivers.iso --pvc drivers -n team
    livevirt volume import ./data.raw --pvc data --data-dir /tmp/lv
    """
    from rich.console import Console
    from rich.progress import Progress

    from livevirt.cli import volume_import
    from livevirt.cli.session import Session, refusals, talk

    data, path = _served(data_dir), file.absolute()

    async def work(session: Session) -> str:
        request = volume_import.ImportRequest(path, session.namespace, claim, size)
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(f"importing {file.name}", total=100.0)

            def show(done: float) -> None:
                bar.update(task, completed=done)

            directories = Directories(data.root / "volumes")
            await volume_import.fill(session.client, directories, request, show)
        return session.namespace

    with refusals(f"error importing {file.name}: {{}}"):
        namespace = talk(work, data if data_dir else None)
    click.echo(f"imported {file.name} into claim {namespace}/{claim}")


def _served(given: Path | None) -> DataDir:
    """Return the data directory of the server to use, which must run on this machine."""
    if given is not None:
        data = DataDir(given.absolute())
        if process.running_pid(data) is None:
            raise click.ClickException(
                f"no livevirt server is running for {data.root}; start it with"
                f" `livevirt up --detach --data-dir {data.root}`"
            )
        return data
    url = cluster.access(cluster.chosen()).server
    found = process.find(url)
    if found is None:
        raise click.ClickException(
            f"no livevirt on this machine serves {url}, and a disk can only be written where the"
            " server runs; start it with `livevirt up --detach`, run this command on its machine,"
            " or name another server with --data-dir or KUBECONFIG"
        )
    return found
