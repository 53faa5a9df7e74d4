"""The tables, and how a database of any earlier version becomes one of this version."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

APPLICATION_ID = 0x4C495645  # "LIVE": distinguishes our files from other programs' databases
FIRST_REVISION = 1  # of the empty store; "0" has a meaning of its own in the Kubernetes API


def create_tables(database: sqlite3.Connection) -> None:
    """Version 1: the log of changes, the objects in force, their number, the compaction mark."""
    # `previous` is the revision that the change supersedes; NULL for ADDED.
    database.execute(
        """
        CREATE TABLE log (
            revision INTEGER PRIMARY KEY,
            resource TEXT NOT NULL,
            namespace TEXT NOT NULL,
            name TEXT NOT NULL,
            type TEXT NOT NULL,
            previous INTEGER,
            checksum INTEGER NOT NULL,
            value BLOB NOT NULL
        )
        """
    )
    # Ends in the revision, as every SQLite index does: it finds a resource's changes since one.
    database.execute("CREATE INDEX log_by_resource ON log (resource)")
    database.execute(
        """
        CREATE TABLE current (
            resource TEXT NOT NULL,
            namespace TEXT NOT NULL,
            name TEXT NOT NULL,
            revision INTEGER NOT NULL,
            PRIMARY KEY (resource, namespace, name)
        ) WITHOUT ROWID
        """
    )
    database.execute(
        """
        CREATE TABLE counts (
            resource TEXT NOT NULL,
            namespace TEXT NOT NULL,
            objects INTEGER NOT NULL,
            PRIMARY KEY (resource, namespace)
        ) WITHOUT ROWID
        """
    )
    database.execute("CREATE TABLE compaction (revision INTEGER NOT NULL)")
    database.execute("INSERT INTO compaction VALUES (?)", (FIRST_REVISION,))


def add_release(database: sqlite3.Connection) -> None:
    """Version 2: the release that opened the database last, so that an upgrade is recognized."""
    database.execute("CREATE TABLE release (version TEXT NOT NULL)")


Migration = Callable[[sqlite3.Connection], None]

# The n-th function turns version n-1 into version n. Append only: shipped ones never change.
MIGRATIONS: tuple[Migration, ...] = (create_tables, add_release)


def version(database: sqlite3.Connection) -> int:
    """Return the schema version of the database; 0 for an empty one."""
    found: int = database.execute("PRAGMA user_version").fetchone()[0]
    return found


def release(database: sqlite3.Connection) -> str:
    """Return the release that opened the database last; "" for one that did not record it."""
    if version(database) < 2:
        return ""
    row = database.execute("SELECT version FROM release").fetchone()
    return row[0] if row else ""


def record_release(database: sqlite3.Connection, opened_by: str) -> None:
    """Record the release that has opened the database."""
    if release(database) == opened_by:
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        database.execute("DELETE FROM release")
        database.execute("INSERT INTO release VALUES (?)", (opened_by,))
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def migrate(database: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Bring the database to the newest version, or leave it as it was."""
    found = version(database)
    if found == len(migrations):
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        for migration in migrations[found:]:
            migration(database)
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {len(migrations)}")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
