"""Reading committed state: objects, listings now and at an older revision, history, and mirrors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from heapq import merge
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from livevirt.kube.store.errors import Compacted, NotYet, translate
from livevirt.kube.store.records import Event, Key, Page, Stored

_GET = """
    SELECT l.revision, l.value FROM current AS c JOIN log AS l ON l.revision = c.revision
    WHERE c.resource = ? AND c.namespace = ? AND c.name = ?
"""
_LIST = """
    SELECT c.namespace, c.name, l.revision, l.value
    FROM current AS c JOIN log AS l ON l.revision = c.revision
    WHERE c.resource = :resource {where} ORDER BY c.namespace, c.name LIMIT :limit
"""
_REST = "SELECT count(*) FROM current AS c WHERE c.resource = :resource {where}"
_COUNT = "SELECT coalesce(sum(objects), 0) FROM counts AS c WHERE c.resource = :resource {where}"
_SINCE = """
    SELECT c.namespace, c.name, c.type, c.previous FROM log AS c
    WHERE c.resource = :resource AND c.revision > :since {where} ORDER BY c.revision
"""
_EVENTS = """
    SELECT c.revision, c.type, c.resource, c.namespace, c.name, c.value, p.value
    FROM log AS c LEFT JOIN log AS p ON p.revision = c.previous
    WHERE c.revision > :since AND c.revision <= :until {where} ORDER BY c.revision LIMIT :limit
"""
_IN_NAMESPACE = "AND c.namespace = :namespace"
# Spelled so that the primary key is searched, not scanned, within one namespace and over all.
_AFTER = {
    True: "AND c.namespace = :namespace AND c.name > :after_name",
    False: "AND (c.namespace, c.name) > (:after_namespace, :after_name)",
}

Row = tuple[str, str, int, bytes]  # namespace, name, revision, value


class Undo(NamedTuple):
    """What happened to one object since a revision."""

    before: int | None  # the revision of the value it had then; None: it did not exist
    exists: bool  # now


class Reader:
    """Answers from one snapshot of the last commit at a time."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self._path = path
        self._execute = database.execute

    def close(self) -> None:
        self._database.close()

    def get(self, key: Key) -> Stored | None:
        """Return the object, or None."""
        try:
            row = self._execute(_GET, key).fetchone()
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        return None if row is None else Stored(key, row[0], row[1])

    def count(self, resource: str, namespace: str | None) -> int:
        """Return the number of objects, without looking at them."""
        with self._snapshot():
            return self._count(resource, namespace)

    def page(
        self,
        resource: str,
        namespace: str | None,
        after: tuple[str, str] | None,
        limit: int | None,
        revision: int | None,
        remaining: int | None,
    ) -> Page:
        """Return the objects following `after`, now or as they were at `revision`."""
        at: dict[str, Any] = {"resource": resource, "namespace": namespace}
        where = "" if namespace is None else _IN_NAMESPACE
        if after is not None:
            where = _AFTER[namespace is not None]
            at |= {"after_namespace": after[0], "after_name": after[1]}
        with self._snapshot():
            newest = self._revision()
            undo: dict[tuple[str, str], Undo] = {}
            if revision is not None and revision != newest:
                undo = self._undo(at, where, revision, newest)
            # One more than asked shows whether any follow; those undone may all fall away.
            enough = -1 if limit is None else limit + 1 + len(undo)
            found: list[Row] = self._execute(
                _LIST.format(where=where), at | {"limit": enough}
            ).fetchall()
            if undo:
                found = list(
                    islice(self._as_before(found, undo), None if limit is None else limit + 1)
                )
            more = limit is not None and len(found) > limit
            if more:
                del found[limit:]
            if not more:
                left = 0
            elif remaining is not None:
                left = remaining - len(found)
            elif after is None:
                left = self._count(resource, namespace) + _difference(undo) - len(found)
            else:
                last = {"after_namespace": found[-1][0], "after_name": found[-1][1]}
                where = _AFTER[namespace is not None]
                left = self._execute(_REST.format(where=where), at | last).fetchone()[0]
                left += _difference({k: u for k, u in undo.items() if k > found[-1][:2]})
        items = [Stored(Key(resource, row[0], row[1]), row[2], row[3]) for row in found]
        return Page(items, newest if revision is None else revision, more, left)

    def events(
        self, resource: str | None, namespace: str | None, since: int, until: int, limit: int
    ) -> list[Event]:
        """Return the first `limit` kept changes after `since` up to `until`."""
        where = "" if resource is None else "AND c.resource = :resource"
        where += "" if namespace is None else f" {_IN_NAMESPACE}"
        at = {"resource": resource, "namespace": namespace}
        span = {"since": since, "until": until, "limit": limit}
        with self._snapshot():
            self._check_kept(since)
            return [
                Event(revision, type, Key(*key), value, previous)
                for revision, type, *key, value, previous in self._execute(
                    _EVENTS.format(where=where), {**at, **span}
                )
            ]

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Read everything within from one commit."""
        try:
            self._execute("BEGIN")
            try:
                yield
            finally:
                self._execute("COMMIT")
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def _revision(self) -> int:
        newest: int | None = self._execute("SELECT max(revision) FROM log").fetchone()[0]
        return self._compacted() if newest is None else newest

    def _compacted(self) -> int:
        mark: int = self._execute("SELECT revision FROM compaction").fetchone()[0]
        return mark

    def _check_kept(self, revision: int) -> None:
        if revision < (oldest := self._compacted()):
            raise Compacted(oldest)

    def _count(self, resource: str, namespace: str | None) -> int:
        where = "" if namespace is None else _IN_NAMESPACE
        at = {"resource": resource, "namespace": namespace}
        count: int = self._execute(_COUNT.format(where=where), at).fetchone()[0]
        return count

    def _undo(
        self, at: dict[str, Any], where: str, revision: int, newest: int
    ) -> dict[tuple[str, str], Undo]:
        """Return, by object, what the changes since `revision` did."""
        if revision > newest:
            raise NotYet(revision, newest)
        self._check_kept(revision)
        undo: dict[tuple[str, str], Undo] = {}
        since = self._execute(_SINCE.format(where=where), at | {"since": revision})
        for namespace, name, type, previous in since:
            key = (namespace, name)
            before = undo[key].before if key in undo else previous
            undo[key] = Undo(before, type != "DELETED")
        return undo

    def _as_before(self, rows: list[Row], undo: dict[tuple[str, str], Undo]) -> Iterator[Row]:
        """Put the objects that changed since back to what they were, in order."""
        untouched = (row for row in rows if row[:2] not in undo)
        restored = (
            (*key, before, self._value(before))
            for key, (before, _) in sorted(undo.items())
            if before is not None
        )
        return merge(untouched, restored, key=itemgetter(0, 1))

    def _value(self, revision: int) -> bytes:
        value: bytes = self._execute(
            "SELECT value FROM log WHERE revision = ?", (revision,)
        ).fetchone()[0]
        return value


def _difference(undo: dict[tuple[str, str], Undo]) -> int:
    """Return how many more objects there were before."""
    return sum((u.before is not None) - u.exists for u in undo.values())


class Held(NamedTuple):
    """One object of a mirror; the decoded object is shared, never change it."""

    key: Key
    revision: int
    object: Any


class Mirror:
    """The objects of one resource, exactly as last published, at the cost of a dict look-up."""

    def __init__(self, stored: Iterable[Stored]) -> None:
        self._held: dict[str, dict[str, Held]] = {}
        for item in stored:
            self._put(Held(item.key, item.revision, msgspec.json.decode(item.value)))

    def get(self, namespace: str, name: str) -> Held | None:
        """Return one object, or None."""
        return self._held.get(namespace, {}).get(name)

    def list(self, namespace: str | None = None) -> list[Held]:
        """Return the objects of a namespace, or of all, ordered by namespace and name."""
        if namespace is None:
            spaces = [space for _, space in sorted(self._held.items())]
        elif space := self._held.get(namespace):
            spaces = [space]
        else:
            return []
        return [held for space in spaces for _, held in sorted(space.items())]

    def offer(self, event: Event) -> None:
        """Take over one published change."""
        if event.type == "DELETED":
            space = self._held.get(event.key.namespace, {})
            space.pop(event.key.name, None)
            if not space:
                self._held.pop(event.key.namespace, None)
        else:
            self._put(Held(event.key, event.revision, event.object))

    def _put(self, held: Held) -> None:
        self._held.setdefault(held.key.namespace, {})[held.key.name] = held
