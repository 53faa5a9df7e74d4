"""Opening the database: lock it, verify it, and touch only what is ours and sound."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote
from zlib import crc32

from livevirt import __version__
from livevirt.kube.store import backup
from livevirt.kube.store.errors import (
    StoreForeign,
    StoreTooNew,
    StoreUnusable,
    corrupt,
)
from livevirt.kube.store.schema import (
    APPLICATION_ID,
    MIGRATIONS,
    migrate,
    record_release,
    version,
)

# ---------------------------------------------------------------- the lock


# ---------------------------------------------------------------- the file

INCREMENTAL = 2  # SQLite's auto_vacuum: free pages are given back when we ask for it
BUSY_MILLISECONDS = 5000  # how long to wait for a lock of another process when opening
VERIFY_AT_OPEN = 64 * 2**20  # a larger database is verified while it is used
CHECKPOINT_PAGES = 4000  # 16 MiB of write-ahead log: pages changed often are copied back once


def connect(
    path: Path, release: str = __version__
) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Return a connection to write and one to read, the database verified and up to date.

    A database that another release opened last is backed up before anything in it changes.
    Raises sqlite3.Error or StoreError, and has then changed nothing in an existing file.
    """
    create(path)
    # A read-only connection neither runs a checkpoint nor removes the write-ahead log when it is
    # closed, so looking at a damaged database leaves it as evidence.
    with closing(_open(path, "ro")) as looking:
        looking.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        verify(looking, path)
        backup.before_upgrade(looking, path, release)
    writing = _open(path, "rw")
    try:
        writing.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        writing.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")  # takes effect in a new file only
        writing.execute("PRAGMA journal_mode = WAL")
        writing.execute("PRAGMA synchronous = FULL")
        writing.execute("PRAGMA secure_delete = OFF")  # zeroing freed pages doubles the writes
        writing.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        writing.execute(f"PRAGMA journal_size_limit = {2 * CHECKPOINT_PAGES * 4096}")
        migrate(writing)
        record_release(writing, release)
        writing.execute("PRAGMA busy_timeout = 0")  # from now on the writer waits, not the loop
        return writing, _open(path, "ro")
    except BaseException:
        writing.close()
        raise


def create(path: Path) -> None:
    """Make an empty private file if there is none, and see to it that its name is on disk."""
    try:
        empty = path.stat().st_size == 0
    except FileNotFoundError:
        empty = True
    except OSError as error:
        raise StoreUnusable(f"cannot use {path}: {error.strerror}") from error
    if not empty:
        return
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size > 0:
        # SQLite would throw the log away; a database is never empty before its log is written.
        raise corrupt(path, f"it is empty or missing although {log.name} holds changes")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # it holds Secrets
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise StoreUnusable(
            f"cannot make {path}: {error.strerror}; check its directory's owner and permissions"
        ) from error
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def verify(database: sqlite3.Connection, path: Path) -> None:
    """Raise unless this is an empty database, or a sound one of ours that we can read."""
    found = version(database)
    application = database.execute("PRAGMA application_id").fetchone()[0]
    if found == 0 and application == 0:
        if database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            return
    elif application == APPLICATION_ID:
        if found > len(MIGRATIONS):
            raise StoreTooNew(
                f"{path} has schema version {found}, this livevirt knows up to {len(MIGRATIONS)};"
                " use the newer livevirt that wrote it, let that one restore a backup"
                " (`livevirt rollback`), or choose another data directory"
            )
        if path.stat().st_size <= VERIFY_AT_OPEN:
            verify_content(database, path)
        return
    raise StoreForeign(
        f"{path} is not a livevirt database and was left as it is; choose another data directory"
    )


def verify_file(path: Path) -> None:
    """Raise StoreCorrupt unless the database is sound. May take long; blocks no connection."""
    with closing(_open(path, "ro")) as database:
        verify_content(database, path)


def verify_content(database: sqlite3.Connection, path: Path) -> None:
    """Raise StoreCorrupt unless pages, values and tables all agree with each other."""
    finding = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if finding != "ok":
        raise corrupt(path, " ".join(finding.split()))
    # SQLite has no checksums of its own: a flipped bit inside a value would go unseen.
    database.create_function("crc32", 1, crc32, deterministic=True)
    damaged = database.execute(
        "SELECT revision FROM log WHERE crc32(value) IS NOT checksum LIMIT 1"
    ).fetchone()
    if damaged:
        raise corrupt(path, f"the value written at revision {damaged[0]} has changed")
    lost = database.execute(
        "SELECT name FROM current AS c WHERE NOT EXISTS ("
        " SELECT 1 FROM log AS l WHERE l.revision = c.revision AND l.name = c.name"
        " AND l.namespace = c.namespace AND l.resource = c.resource AND l.type <> 'DELETED'"
        ") LIMIT 1"
    ).fetchone()
    if lost:
        raise corrupt(path, f"object {lost[0]!r} has no value")


def _open(path: Path, mode: str) -> sqlite3.Connection:
    # `check_same_thread` is off because the commit runs in the writer thread while the loop keeps
    # its hands off that connection. No waiting for locks: the lock file makes us the only writer.
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=0,
    )
