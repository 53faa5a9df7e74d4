"""Group commit: the loop puts batches together, one thread waits for the disk."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from livevirt.kube.store.batch import (
    Ages,
    Batch,
    Call,
    Retention,
    Sizes,
    compact,
    history_size,
    vacuum,
)
from livevirt.kube.store.database import INCREMENTAL
from livevirt.kube.store.errors import StoreClosed, StoreUnusable, translate
from livevirt.kube.store.records import Change, Stored

BATCH = 256  # calls; bounds how long the loop is kept from other work
CHUNK = 128  # revisions compacted in passing, when so many are due
PATIENCE = 0.25  # of a commit's duration may be spent on waiting for more calls,
MOST_PATIENCE = 0.002  # but no more than so many seconds
IDLE = 0.5  # seconds without writes before compaction gets transactions of its own,
IDLE_CHUNK = 512  # each of so many revisions: a few milliseconds
VACUUM_CHUNK = 1024  # free pages given back in one transaction
LEAST_SPARE = 2048  # pages that stay for the next writes, or a quarter of the file if that is more
LOCKED_SECONDS = 5.0  # how long calls wait for a database that another process has locked,
LOCKED_RETRY = 0.05  # tried again so often

Publish = Callable[[Batch], None]
ReleaseSpace = Callable[[], bool]
"""Free some space that was kept for this; return False if there is none."""


def no_reserve() -> bool:
    """Return False: there is no space in reserve."""
    return False


class Policy(NamedTuple):
    """What the writer keeps of history, and what it does when the disk is full."""

    keep: Retention
    release_space: ReleaseSpace = no_reserve


class Writer:
    """Takes calls in the loop's thread and settles them once they are on disk.

    The connection is used by the loop while it puts a batch together and by the thread while it
    commits; never by both, because there is only one batch at a time.
    """

    def __init__(
        self, database: sqlite3.Connection, path: Path, policy: Policy, publish: Publish
    ) -> None:
        self._database = database
        self._path = path
        self._keep, self._release_space = policy
        self._publish = publish
        self.compacted: int = database.execute("SELECT revision FROM compaction").fetchone()[0]
        newest = database.execute("SELECT max(revision) FROM log").fetchone()[0]
        self.revision: int = max(newest or 0, self.compacted)
        self.commits = 0
        self.failures = 0
        self._locked_since: float | None = None  # another process has the database
        self._ages = Ages(self.revision, time.monotonic())
        self._sizes = Sizes(self.revision, history_size(database))
        self._shrinkable = True  # there may be free pages worth giving back
        self._waiting: deque[Call] = deque()
        self._busy = False
        self._closing = False
        self._crowd = 1  # calls that lately came together
        self._patience = 0.0  # seconds to wait for them
        self._began = 0.0  # when the thread got the batch under way
        self._gathering: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None
        self._tidying: asyncio.TimerHandle | None = None
        self._batches: SimpleQueue[tuple[Batch, asyncio.AbstractEventLoop] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._commit, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, changes: tuple[Change, ...]) -> asyncio.Future[list[Stored]]:
        """Queue one call; the future gets its outcome."""
        if self._closing:
            raise StoreClosed(f"{self._path} has been closed")
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[list[Stored]] = loop.create_future()
        self._waiting.append(Call(changes, outcome))
        if not self._busy:
            self._busy = True
            self._gather(loop)
        elif self._gathering and len(self._waiting) >= self._crowd:
            self._gathering.cancel()
            self._gathering = None
            loop.call_soon(self._next)
        return outcome

    def _gather(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the next batch, once as many calls wait as lately came together, or soon.

        Callers that were answered together come back together, but not in the same instant;
        without some patience the first of them would have the disk to itself.
        """
        if len(self._waiting) >= self._crowd or self._closing:
            loop.call_soon(self._next)  # not at once: others ready in this turn can still join
        else:
            self._gathering = loop.call_later(self._patience, self._next)

    async def close(self) -> None:
        """Finish what was submitted, then end the thread and close the connection."""
        self._closing = True
        if self._tidying:
            self._tidying.cancel()
        if self._busy:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        self._batches.put(None)
        self._thread.join()  # it has nothing left to do
        self._database.close()

    def _next(self) -> None:
        """In the loop: put the waiting calls into a transaction and hand it to the thread."""
        self._gathering = None
        waiting = self._waiting
        if not waiting:
            self._rest()
            return
        calls = [waiting.popleft() for _ in range(min(len(waiting), BATCH))]
        batch = Batch(calls, self.revision)
        try:
            batch.apply(self._database)
        except sqlite3.Error as error:
            if self._is_locked(error):
                waiting.extendleft(reversed(calls))
                asyncio.get_running_loop().call_later(LOCKED_RETRY, self._next)
                return
            batch.error = error
        else:
            self._locked_since = None
            if batch.events or batch.probing:
                # Every so often, not with every batch; and always faster than history grows.
                due = self._compactable() - self.compacted
                self._hand_over(batch, CHUNK + 2 * len(batch.events) if due >= CHUNK else 0)
                return
        # Nothing to commit: every call failed.
        _roll_back(self._database)
        self._conclude(batch)

    def _is_locked(self, error: sqlite3.Error) -> bool:
        """Return whether another process has the database, and has not had it for too long."""
        if _code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return False
        now = time.monotonic()
        if self._locked_since is None:
            self._locked_since = now
        return now - self._locked_since < LOCKED_SECONDS

    def _hand_over(self, batch: Batch, chunk: int) -> None:
        """Let the thread commit the batch and compact up to `chunk` revisions with it."""
        if chunk and (due := self._compactable()) > self.compacted:
            batch.compacted = min(due, self.compacted + chunk)
        self._began = time.monotonic()
        self._batches.put((batch, asyncio.get_running_loop()))

    def _compactable(self) -> int:
        """Return the newest revision whose history need not be kept."""
        aged = self._ages.aged(self._keep.age, time.monotonic())
        heavy = 0
        if self._sizes.total > self._keep.size:
            heavy = self._sizes.beyond(self._keep.size, self.compacted)
        return self._keep.limit(self.revision, aged, heavy)

    def _commit(self) -> None:
        """In the thread: make batches durable, one after the other."""
        while (job := self._batches.get()) is not None:
            batch, loop = job
            try:
                if batch.compacted is not None:
                    compact(self._database, self.compacted, batch.compacted)
                self._database.execute("COMMIT")
                if batch.vacuum:
                    vacuum(self._database, batch.vacuum)
            except Exception as error:
                batch.error = error
                _roll_back(self._database)
            # RuntimeError: the loop is closed, so no caller waits any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._conclude, batch)

    def _conclude(self, batch: Batch) -> None:
        """In the loop: publish a committed batch, answer its callers, start the next."""
        if batch.error is not None:
            self.failures += 1
        if isinstance(error := batch.error, sqlite3.Error):
            if _code(error) == sqlite3.SQLITE_FULL and batch.calls and self._release_space():
                self._waiting.extendleft(reversed(batch.calls))
                self._gather(asyncio.get_running_loop())
                return
            batch.fail(lambda: translate(error, self._path))
        elif error is not None:
            batch.fail(lambda: StoreUnusable(f"cannot write {self._path}: {error}"))
        else:
            if batch.events:
                self.commits += 1
                self.revision = batch.revision
                self._ages.note(batch.revision, time.monotonic())
                self._sizes.note(batch.events)
            if batch.compacted is not None:
                self.compacted = batch.compacted
                self._shrinkable = True
            self._publish(batch)
            batch.settle()
        taken = time.monotonic() - self._began
        self._patience = min(MOST_PATIENCE, taken * PATIENCE)
        self._crowd = max(len(batch), self._crowd // 2)
        if self._waiting:
            self._gather(asyncio.get_running_loop())
        else:
            self._rest()

    def _rest(self) -> None:
        """In the loop: nothing waits; look after the history if it stays so."""
        self._busy = False
        if self._idle and not self._idle.done():
            self._idle.set_result(None)
        due = self._shrinkable or self._compactable() > self.compacted
        if due and not self._closing and not self._tidying:
            self._tidying = asyncio.get_running_loop().call_later(IDLE, self._tidy)

    def _tidy(self) -> None:
        """In the loop: compact in a transaction of its own, or give free pages back."""
        self._tidying = None
        if self._busy or self._closing:
            return
        self._busy = True
        batch = Batch([], self.revision)
        try:
            if self._compactable() <= self.compacted:
                batch.vacuum = min(spare_pages(self._database), VACUUM_CHUNK)
                self._shrinkable = batch.vacuum > 0
                if not batch.vacuum:
                    self._busy = False
                    return
            batch.apply(self._database)
        except sqlite3.Error:
            self._busy = False  # a writer will meet the same error and report it
        else:
            self._hand_over(batch, IDLE_CHUNK)


def spare_pages(database: sqlite3.Connection) -> int:
    """Return the number of free pages beyond those that are kept for the next writes."""
    if database.execute("PRAGMA auto_vacuum").fetchone()[0] != INCREMENTAL:
        return 0
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    free = database.execute("PRAGMA freelist_count").fetchone()[0]
    return max(0, int(free) - max(LEAST_SPARE, int(pages) // 4))


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code, which is the low byte."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _roll_back(database: sqlite3.Connection) -> None:
    """End the transaction without its changes; SQLite may have done so by itself."""
    with contextlib.suppress(sqlite3.Error):
        if database.in_transaction:
            database.execute("ROLLBACK")
