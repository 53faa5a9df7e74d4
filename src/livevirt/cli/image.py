"""`livevirt image`: the disks that containerDisks and registry sources are taken from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from livevirt.cli import table
from livevirt.cli.table import Row
from livevirt.paths import default_data_dir

if TYPE_CHECKING:
    from livevirt.node.images import ImageStore

_store = click.option(
    "--image-store",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Where images are kept (default: `images` in the default data directory).",
)


def _opened(given: Path | None) -> ImageStore:
    from livevirt.node.images import FOLDER, ImageStore

    return ImageStore((given or default_data_dir() / FOLDER).absolute())


@click.group()
def image() -> None:
    """Keep disk images by the names that manifests use.

    \b
    livevirt image import ./alpine.qcow2 --name example/alpine:3
    livevirt image list
    """


@image.command("import")
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--name", required=True, help="The name manifests will use, such as example/vm:1.")
@_store
def import_(path: Path, name: str, image_store: Path | None) -> None:
    """Import an image: an OCI layout, a tar of one, a qcow2 or a raw disk.

    \b
    livevirt image import ./guest-oci --name livevirt/guest:latest
    livevirt image import ./debian.qcow2 --name debian:12
    """
    from rich.console import Console

    with Console(stderr=True).status(f"importing {path}"):
        found = _opened(image_store).import_(path, name)
    click.echo(f"imported {found.name}: {_size(found.virtual_size)}, {found.format}")


@image.command("list")
@_store
def list_(image_store: Path | None) -> None:
    """Show the images there are.

    \b
    livevirt image list
    """
    found = _opened(image_store).list()
    table.echo(
        ("NAME", "SIZE", "FORMAT", "DIGEST"),
        [
            Row((each.name, _size(each.virtual_size), each.format, each.digest[:19]))
            for each in found
        ],
    )


@image.command()
@click.argument("name")
@_store
def remove(name: str, image_store: Path | None) -> None:
    """Forget an image; guests that run from it run on.

    \b
    livevirt image remove debian:12
    """
    _opened(image_store).remove(name)
    click.echo(f"removed {name}")


def _size(amount: int) -> str:
    value, unit = float(amount), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.4g} {unit}"
