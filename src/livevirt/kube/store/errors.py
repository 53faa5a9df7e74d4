"""Every error of the store, sorted by what the caller can do.

StoreError
├── Precondition     the object is not as expected: read again, decide again
│   ├── Exists       it was to be created, and is there
│   ├── Missing      it was to be changed, and is not there
│   └── Stale        it has another revision
├── Compacted        that history is gone: list again
├── NotYet           that revision has not been given out
├── Overrun          the watcher was too slow: watch again from the last revision seen
├── StoreFull        no space: the write did not happen; free some and repeat it
├── StoreLocked      another process has the database
├── StoreTooNew      written by a newer livevirt
├── StoreForeign     a database, but not one of ours
├── StoreCorrupt     damaged: restore a backup
├── StoreUnusable    permissions or input/output: the system's own message
└── StoreClosed      used after `close`
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from livevirt.errors import StoreError
from livevirt.kube.store.records import Key

__all__ = [
    "Compacted",
    "Exists",
    "Missing",
    "NotYet",
    "Overrun",
    "Precondition",
    "Stale",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreForeign",
    "StoreFull",
    "StoreLocked",
    "StoreTooNew",
    "StoreUnusable",
    "translate",
]


class Precondition(StoreError):
    """The object is not as the change expects."""

    def __init__(self, key: Key, message: str) -> None:
        super().__init__(message)
        self.key = key


class Exists(Precondition):
    """The object was to be created, and is there already."""

    def __init__(self, key: Key) -> None:
        super().__init__(key, f"{key} already exists")


class Missing(Precondition):
    """The object was to be changed or deleted, and is not there."""

    def __init__(self, key: Key) -> None:
        super().__init__(key, f"{key} does not exist")


class Stale(Precondition):
    """The object has changed since the revision the caller knows."""

    def __init__(self, key: Key, current: int) -> None:
        super().__init__(key, f"{key} has changed: it is at revision {current} now")
        self.current = current


class Compacted(StoreError):
    """History before `oldest` is no longer kept."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"changes up to revision {oldest} are no longer kept; list again")
        self.oldest = oldest


class NotYet(StoreError):
    """The revision asked for lies in the future."""

    def __init__(self, revision: int, current: int) -> None:
        super().__init__(f"revision {revision} does not exist yet; the newest is {current}")
        self.revision = revision
        self.current = current


class Overrun(StoreError):
    """The watcher did not keep up and was cut off."""


class StoreFull(StoreError):
    """There is no space for the write; it did not happen."""


class StoreLocked(StoreError):
    """Another process has the database."""


class StoreTooNew(StoreError):
    """The database was written by a newer livevirt."""


class StoreForeign(StoreError):
    """The file is a database of some other program."""


class StoreCorrupt(StoreError):
    """The database is damaged."""


class StoreUnusable(StoreError):
    """The system does not let us read or write the database."""


class StoreClosed(StoreError):
    """The store has been closed."""


def translate(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the store's own error for SQLite's, naming the file and the next move."""
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return StoreClosed(f"{path} has been closed")
    # The low byte is SQLite's primary result code; the rest refines it.
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return StoreFull(
                f"no space left to write {path}: the change was not made; free some space on its"
                " file system and try again"
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return corrupt(path, str(error))
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreLocked(
                f"{path} is locked by another program ({error}); end that program and try again"
            )
        case _:
            return StoreUnusable(
                f"cannot use {path}: {error}; check its disk, owner and permissions"
            )


def corrupt(path: Path, finding: str) -> StoreCorrupt:
    """Return the error for a damaged database; `finding` is what is wrong."""
    return StoreCorrupt(
        f"{path} is damaged ({finding}) and was left as it is; restore it from a backup, or move it"
        f" and {path.name}-wal away to start empty"
    )
