"""Copies of the database: taken before an upgrade, put back by a rollback.

They lie in `backups/` beside the database, each a complete SQLite database of its own that no
later run changes or removes. SQLite's backup interface makes them, so a copy is one consistent
state, and a database that is overwritten by one is afterwards either the old or the new.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from livevirt.files import durable
from livevirt.kube.store import schema
from livevirt.kube.store.errors import StoreForeign, StoreUnusable, translate
from livevirt.kube.store.lock import Lock

log = logging.getLogger(__name__)

FOLDER = "backups"
UPGRADE, ROLLBACK = "upgrade", "rollback"  # why a copy was taken: the first part of its name
_TIME = "%Y%m%dT%H%M%S.%fZ"


@dataclass(frozen=True, slots=True)
class Backup:
    """One copy of the database."""

    path: Path
    reason: str  # UPGRADE or ROLLBACK
    taken: datetime
    release: str  # that had opened the database last; "" for releases that did not record it
    schema: int


def before_upgrade(database: sqlite3.Connection, path: Path, release: str) -> None:
    """Copy the database if another release opened it last; a new one needs no copy."""
    found = schema.version(database)
    if found == 0 or (found == len(schema.MIGRATIONS) and schema.release(database) == release):
        return
    copy = _copy(database, path, UPGRADE)
    log.info(
        "database backed up before an upgrade",
        extra={"backup": copy, "from": schema.release(database) or "unrecorded", "to": release},
    )


def backups(path: Path) -> list[Backup]:
    """Return the copies of the database at `path`, the newest first."""
    found = []
    for file in (path.parent / FOLDER).glob("*.db"):
        reason, _, taken = file.stem.partition("-")
        try:
            when = datetime.strptime(taken, _TIME).replace(tzinfo=UTC)
            with closing(_open(file)) as database:
                found.append(
                    Backup(file, reason, when, schema.release(database), schema.version(database))
                )
        except (ValueError, sqlite3.Error):
            log.debug("not a backup", extra={"file": file})
    return sorted(found, key=lambda backup: backup.taken, reverse=True)


def restore(path: Path, backup: Path) -> Path | None:
    """Put a copy in place of the database; return the copy made of what it replaces.

    Raises StoreLocked while a server runs, and StoreError if either database is unusable; the
    database is then as it was.
    """
    lock = Lock(path)
    try:
        with closing(_open(backup)) as source:
            _check(source, backup)
            replaced = None
            if path.exists():
                with closing(_open(path)) as current:
                    replaced = _copy(current, path, ROLLBACK)
            with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as target:
                path.chmod(0o600)
                target.execute("PRAGMA journal_mode = WAL")
                target.execute("PRAGMA synchronous = FULL")
                source.backup(target)
            durable.sync(path.parent)
            return replaced
    except sqlite3.Error as error:
        raise translate(error, path) from error
    finally:
        lock.release()


def _check(database: sqlite3.Connection, path: Path) -> None:
    """Raise unless the copy is a sound database of ours."""
    application = database.execute("PRAGMA application_id").fetchone()[0]
    if application != schema.APPLICATION_ID:
        raise StoreForeign(f"{path} is not a backup of a livevirt database")
    finding = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if finding != "ok":
        raise StoreUnusable(f"the backup {path} is damaged ({finding}); choose another one")


def _copy(database: sqlite3.Connection, path: Path, reason: str) -> Path:
    """Return a new copy of an open database, complete and on the disk.

    Raises sqlite3.Error or StoreUnusable.
    """
    folder = path.parent / FOLDER
    name = f"{reason}-{datetime.now(UTC).strftime(_TIME)}.db"
    partial = folder / f".{name}.partial"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for left in folder.glob(".*.partial*"):  # by a crash; the lock makes us the only writer
            left.unlink()
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))  # it holds Secrets
        with closing(sqlite3.connect(partial, isolation_level=None)) as target:
            database.backup(target)
            # The copy is in WAL mode like its original; a file alone needs no log beside it.
            target.execute("PRAGMA journal_mode = DELETE")
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, folder / name)
        durable.sync(folder)
        durable.sync(folder.parent)
    except sqlite3.Error:
        partial.unlink(missing_ok=True)
        raise
    except OSError as error:
        raise StoreUnusable(
            f"cannot back up {path} to {folder}: {error}; nothing was changed. Free some space"
            " or correct the permissions, then try again"
        ) from error
    return folder / name


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, isolation_level=None, timeout=0
    )
