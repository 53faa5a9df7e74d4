"""The store: the one object the API server holds."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from livevirt.kube.store.batch import Batch, Retention
from livevirt.kube.store.database import VERIFY_AT_OPEN, connect, verify_file
from livevirt.kube.store.errors import Compacted, StoreFull, translate
from livevirt.kube.store.lock import Lock
from livevirt.kube.store.reader import Mirror, Reader
from livevirt.kube.store.records import Change, Key, Page, Stored
from livevirt.kube.store.watch import Hub, Watch
from livevirt.kube.store.writer import Policy, ReleaseSpace, Writer, no_reserve

DEFAULT_RETENTION = Retention()


class Store:
    """Objects under keys, each change numbered; see the package for what it promises."""

    def __init__(
        self,
        path: Path,
        lock: Lock,
        writing: sqlite3.Connection,
        reading: sqlite3.Connection,
        policy: Policy,
    ) -> None:
        self._path, self._lock = path, lock
        self._reader = Reader(reading, path)
        self._writer = Writer(writing, path, policy, self._publish)
        self._hub = Hub(self._writer.revision, self._reader.events)
        self._revision = self._writer.revision
        self._closed = False
        self._mirrors: dict[str, Mirror] = {}

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        keep: Retention = DEFAULT_RETENTION,
        release_space: ReleaseSpace = no_reserve,
    ) -> Store:
        """Return the store in the file `path`, made if missing, in a directory that exists.

        When the disk is full, `release_space` is called; if it frees some, the write is repeated.
        """
        lock = Lock(path)
        try:
            try:
                connections = connect(path)
            except (sqlite3.Error, StoreFull):
                if not release_space():
                    raise
                connections = connect(path)
            return cls(path, lock, *connections, Policy(keep, release_space))
        except sqlite3.Error as error:
            lock.release()
            raise translate(error, path) from error
        except BaseException:
            lock.release()
            raise

    async def write(self, *changes: Change) -> list[Stored]:
        """Make all changes or none; return what is stored, once it is on disk.

        The changes get consecutive revisions, in the order given. Raises Exists, Missing or Stale
        if one does not find what it expects, StoreError if the disk does not take them.
        """
        return await self._writer.submit(changes) if changes else []

    async def verify(self) -> None:
        """Verify a database that was too large for it at opening; raises StoreCorrupt.

        It reads the whole file, in a thread.
        """
        if self._path.stat().st_size > VERIFY_AT_OPEN:
            try:
                await asyncio.to_thread(verify_file, self._path)
            except sqlite3.Error as error:
                raise translate(error, self._path) from error

    async def probe(self) -> None:
        """Commit a transaction that changes nothing; raises StoreError if the disk refuses it."""
        await self._writer.submit(())

    def get(self, key: Key) -> Stored | None:
        """Return the object as last committed, or None."""
        stored = self._reader.get(key)
        if stored is not None and stored.revision > self._revision:
            self._revision = stored.revision
        return stored

    def list(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        after: tuple[str, str] | None = None,
        limit: int | None = None,
        revision: int | None = None,
        remaining: int | None = None,
    ) -> Page:
        """Return the objects of a resource that follow `after`, a namespace and name.

        `revision` asks for an older state, as the next page of a listing does. `remaining`, taken
        from the page before, saves counting the rest again.
        """
        page = self._reader.page(resource, namespace, after, limit, revision, remaining)
        if page.revision > self._revision:
            self._revision = page.revision
        return page

    def count(self, resource: str, namespace: str | None = None) -> int:
        """Return the number of objects, at the same cost for few and for many."""
        return self._reader.count(resource, namespace)

    def mirror(self, resource: str) -> Mirror:
        """Return a resource held in memory; the same one each time."""
        found = self._mirrors.get(resource)
        if found is None:
            found = self._mirrors[resource] = Mirror(self.list(resource).items)
            self._hub.mirror(resource, found)
        return found

    @property
    def revision(self) -> int:
        """The newest revision published, or shown by any read since."""
        return self._revision

    @property
    def oldest(self) -> int:
        """The oldest revision that can be listed, or watched from."""
        return self._writer.compacted

    @property
    def failures(self) -> int:
        """The number of transactions that could not be committed since opening."""
        return self._writer.failures

    @property
    def commits(self) -> int:
        """The number of transactions since opening; far fewer than writes under load."""
        return self._writer.commits

    def watch(self, resource: str | None, namespace: str | None = None, *, since: int) -> Watch:
        """Return the changes after `since`, of one resource or of all; raise Compacted if gone."""
        if since < self._writer.compacted:
            raise Compacted(self._writer.compacted)
        watch = Watch(self._hub, resource, namespace, since)
        if self._closed:
            watch.close()
        else:
            self._hub.add(watch)
        return watch

    async def close(self) -> None:
        """Finish the writes under way, end all watches, release the file."""
        if self._closed:
            return
        self._closed = True
        await self._writer.close()
        self._hub.close()
        self._reader.close()
        self._lock.release()

    def _publish(self, batch: Batch) -> None:
        if batch.events:
            if batch.revision > self._revision:
                self._revision = batch.revision
            self._hub.publish(batch.events)
