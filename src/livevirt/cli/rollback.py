"""`livevirt rollback`: put back the database from before an upgrade."""

from __future__ import annotations

from pathlib import Path

import click

from livevirt.cli import process
from livevirt.errors import LivevirtError
from livevirt.kube.store import backup as store_backup
from livevirt.kube.store.backup import UPGRADE, Backup
from livevirt.paths import DataDir, default_data_dir


class RollbackError(LivevirtError):
    """There is nothing to go back to."""


@click.command()
@process.data_dir_option
@click.option(
    "--to", "name", metavar="BACKUP", default=None,
    help="The backup to restore, by the name that --list shows (default: the newest that an"
    " upgrade took).",
)  # fmt: skip
@click.option("--list", "listing", is_flag=True, help="List the backups and change nothing.")
def rollback(data_dir: Path | None, name: str | None, listing: bool) -> None:
    """Restore the database from before an upgrade, while the server is down.

    Every API object returns to what it was at the upgrade; later changes are undone. Disks of
    volumes are not touched. The database that is replaced is kept as a backup, too.

    \b
    livevirt down && livevirt rollback
    livevirt rollback --list --data-dir /tmp/lv
    livevirt rollback --to upgrade-20270131T120000.000000Z.db
    """
    data = DataDir((data_dir or default_data_dir()).absolute())
    found = store_backup.backups(data.database)
    if listing:
        for each in found:
            click.echo(f"{each.path.name}  {describe(each)}")
        return
    chosen = choose(found, name, data.backups)
    replaced = store_backup.restore(data.database, chosen.path)
    click.echo(f"restored {chosen.path.name}: {describe(chosen)}")
    if replaced is not None:
        click.echo(f"the database it replaces is kept: {replaced}")
    click.echo("install the older livevirt before you start it: this one would upgrade it again")


def choose(found: list[Backup], name: str | None, folder: Path) -> Backup:
    """Return the backup of that name, or the newest from before an upgrade."""
    for each in found:
        if each.path.name == name or (name is None and each.reason == UPGRADE):
            return each
    if name is not None:
        raise RollbackError(f"there is no backup {name} in {folder}; see livevirt rollback --list")
    raise RollbackError(f"no upgrade has left a backup in {folder}: there is nothing to restore")


def describe(backup: Backup) -> str:
    """Return what a person needs to know to choose a backup."""
    release = f"livevirt {backup.release}" if backup.release else "livevirt before 0.2"
    occasion = "an upgrade" if backup.reason == UPGRADE else "a rollback"
    return f"data of {release}, saved before {occasion} on {backup.taken:%Y-%m-%d %H:%M:%S} UTC"
