"""One transaction: the changes of the calls that wait together, and some compaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from livevirt.kube.store.errors import Exists, Missing, Stale
from livevirt.kube.store.records import Change, Delete, Event, EventType, Stored

MARK_BYTES = 2**18  # of history that are counted together
RESOLUTION = 1.0  # seconds; changes closer together share one mark


@dataclass(frozen=True, slots=True)
class Retention:
    """Keep the last `revisions` changes and those of the last `age` seconds, at most `maximum`.

    Superseded values of more than `size` bytes are not kept, however new they are.
    """

    revisions: int = 10_000
    age: float = 300.0
    maximum: int = 200_000
    size: int = 128 * 2**20

    def __post_init__(self) -> None:
        # The newest change carries the revision counter, so it can never be dropped.
        if not 1 <= self.revisions <= self.maximum:
            raise ValueError("retention needs 1 <= revisions <= maximum")

    def limit(self, revision: int, aged: int, heavy: int = 0) -> int:
        """Return the newest revision that may be compacted.

        All up to `aged` are past the age, and those up to `heavy` are beyond the size.
        """
        by_number = min(revision - self.revisions, max(aged, revision - self.maximum))
        return max(by_number, min(heavy, revision - 1)) if heavy else by_number


class Ages:
    """Finds the revisions that are past an age, at about a second's resolution.

    Times are monotonic and only in memory: after a restart everything found counts as new, so
    history is kept rather too long than too short, whatever happens to the wall clock.
    """

    def __init__(self, revision: int, now: float) -> None:
        self._marks = deque([(now, revision)])
        self._aged = 0

    def note(self, revision: int, now: float) -> None:
        """Take note that `revision` is the newest now."""
        marks = self._marks
        if marks and now - marks[-1][0] < RESOLUTION:
            marks[-1] = (marks[-1][0], revision)  # seems older than it is: `aged` allows for it
        else:
            marks.append((now, revision))

    def aged(self, age: float, now: float) -> int:
        """Return the newest revision older than `age` seconds."""
        marks = self._marks
        while marks and now - marks[0][0] > age + RESOLUTION:
            self._aged = marks.popleft()[1]
        return self._aged


class Sizes:
    """Counts the bytes of history, and computes how much of it must be dropped to fit a budget."""

    def __init__(self, revision: int, size: int) -> None:
        self._marks = deque([(revision, size)])  # bytes that became history up to a revision
        self.total = size

    def note(self, events: Iterable[Event]) -> None:
        """Count what these changes superseded."""
        revision = size = 0
        for event in events:
            revision = event.revision
            size += len(event.previous or b"") + (
                len(event.value) if event.type == "DELETED" else 0
            )
        self.total += size
        if self._marks and self._marks[-1][1] < MARK_BYTES:
            size += self._marks.pop()[1]
        self._marks.append((revision, size))

    def beyond(self, budget: int, compacted: int) -> int:
        """Return the oldest revision at which the rest fits the budget; 0 if everything fits."""
        marks = self._marks
        while marks and marks[0][0] <= compacted:
            self.total -= marks.popleft()[1]
        excess, found = self.total - budget, 0
        for revision, size in marks:
            if excess <= 0:
                break
            found, excess = revision, excess - size
        return found


_FIND = """
    SELECT l.revision, l.value FROM current AS c JOIN log AS l ON l.revision = c.revision
    WHERE c.resource = ? AND c.namespace = ? AND c.name = ?
"""
_APPEND = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT = "INSERT OR IGNORE INTO current VALUES (?, ?, ?, ?)"
_UPDATE = "UPDATE current SET revision = ? WHERE resource = ? AND namespace = ? AND name = ?"
_DELETE = "DELETE FROM current WHERE resource = ? AND namespace = ? AND name = ?"
_COUNT = """
    INSERT INTO counts VALUES (?1, ?2, ?3)
    ON CONFLICT (resource, namespace) DO UPDATE SET objects = objects + ?3
"""
_PROBE = "UPDATE compaction SET revision = revision"  # a write that changes nothing
_UNCOUNT = "DELETE FROM counts WHERE resource = ? AND namespace = ? AND objects = 0"

Execute = Callable[..., sqlite3.Cursor]


class Call(NamedTuple):
    """What one caller of `write` wants, and where it waits for the outcome."""

    changes: tuple[Change, ...]
    outcome: asyncio.Future[list[Stored]]


class Batch:
    """The changes of some calls, put into one open transaction and then committed or not."""

    __slots__ = ("_outcomes", "calls", "compacted", "error", "events", "probing", "revision",
                 "vacuum")  # fmt: skip

    def __init__(self, calls: list[Call], revision: int) -> None:
        self.calls = calls
        self._outcomes: list[list[Stored] | Exception] = []
        self.revision = revision  # the newest, once committed
        self.events: list[Event] = []
        self.compacted: int | None = None  # the new mark, if the transaction moves it
        self.error: Exception | None = None  # why the commit failed
        self.vacuum = 0  # free pages to give back to the file system
        self.probing = False  # it is to be committed although it changes nothing

    def __len__(self) -> int:
        """The number of calls."""
        return len(self.calls)

    def apply(self, database: sqlite3.Connection) -> None:
        """Begin a transaction and put in the calls that can be; raise sqlite3.Error if it can't."""
        execute = database.cursor().execute
        execute("BEGIN IMMEDIATE")
        created: dict[tuple[str, str], int] = {}
        for changes, outcome in self.calls:
            if outcome.cancelled():
                self._outcomes.append([])
                continue
            if not changes:
                execute(_PROBE)
                self.probing = True
                self._outcomes.append([])
                continue
            try:
                if len(changes) == 1:
                    events = [_change(execute, changes[0], self.revision + 1)]
                else:
                    events = _change_all(execute, changes, self.revision)
            except sqlite3.Error:
                raise
            except Exception as error:  # a precondition, or whatever `encode` raised
                self._outcomes.append(error)
                continue
            for event in events:
                if event.type != "MODIFIED":
                    place = event.key[:2]
                    by = 1 if event.type == "ADDED" else -1
                    created[place] = created.get(place, 0) + by
            self.events += events
            self.revision += len(events)
            self._outcomes.append([Stored(e.key, e.revision, e.value) for e in events])
        for place, by in created.items():
            if by:
                execute(_COUNT, (*place, by))
                if by < 0:
                    execute(_UNCOUNT, place)

    def settle(self) -> None:
        """Return every caller its own outcome: the batch is committed."""
        for (_, outcome), result in zip(self.calls, self._outcomes, strict=True):
            if outcome.done():
                continue  # cancelled
            if isinstance(result, Exception):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)

    def fail(self, error: Callable[[], Exception]) -> None:
        """Fail every caller, because nothing was written; each gets its own error."""
        for _, outcome in self.calls:
            if not outcome.done():
                outcome.set_exception(error())


def vacuum(database: sqlite3.Connection, pages: int) -> None:
    """Give so many free pages back to the file system, in a transaction of its own."""
    # `execute` would take a single step of it, and with each step one page is given back.
    database.executescript(f"PRAGMA incremental_vacuum({pages})")
    database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # here the file gets shorter


def history_size(database: sqlite3.Connection) -> int:
    """Return the bytes of values that later changes superseded."""
    (size,) = database.execute(
        "SELECT coalesce(sum(length(p.value)), 0) FROM log AS c"
        " JOIN log AS p ON p.revision = c.previous"
    ).fetchone()
    return int(size)


def compact(database: sqlite3.Connection, start: int, end: int) -> None:
    """Within the transaction, forget the history after `start` up to and including `end`.

    What a forgotten change superseded goes, and deletions go; the rest are objects in force at
    `end`, whose rows stay as their values.
    """
    database.execute(
        "DELETE FROM log WHERE revision IN ("
        " SELECT previous FROM log WHERE revision > ? AND revision <= ? AND previous IS NOT NULL)",
        (start, end),
    )
    database.execute(
        "DELETE FROM log WHERE revision > ? AND revision <= ? AND type = 'DELETED'", (start, end)
    )
    database.execute("UPDATE compaction SET revision = ?", (end,))


def _change_all(execute: Execute, changes: Iterable[Change], revision: int) -> list[Event]:
    """Make all changes, numbered from `revision` + 1, or none."""
    events: list[Event] = []
    execute("SAVEPOINT call")
    try:
        for number, change in enumerate(changes, revision + 1):
            events.append(_change(execute, change, number))
    except sqlite3.Error:
        raise  # the whole transaction goes
    except Exception:
        execute("ROLLBACK TO call")
        execute("RELEASE call")
        raise
    execute("RELEASE call")
    return events


def _change(execute: Execute, change: Change, revision: int) -> Event:
    """Make one change. Whatever the caller can get wrong is raised before anything is written."""
    key = change.key
    if change.expected is None:
        return _create(execute, change, revision)
    found: tuple[int, bytes] | None = execute(_FIND, key).fetchone()
    if found is None:
        raise Missing(key)
    current, previous = found
    if change.expected != current:
        raise Stale(key, current)
    value = change.encode(revision)
    checksum = crc32(value)
    type: EventType
    if isinstance(change, Delete):
        type = "DELETED"
        execute(_DELETE, key)
    else:
        type = "MODIFIED"
        execute(_UPDATE, (revision, *key))
    execute(_APPEND, (revision, *key, type, current, checksum, value))
    return Event(revision, type, key, value, previous)


def _create(execute: Execute, change: Change, revision: int) -> Event:
    """Create an object unless it exists, which the insert itself finds out."""
    key, value = change.key, change.encode(revision)
    checksum = crc32(value)
    if execute(_INSERT, (*key, revision)).rowcount == 0:
        raise Exists(key)
    execute(_APPEND, (revision, *key, "ADDED", None, checksum, value))
    return Event(revision, "ADDED", key, value, None)
