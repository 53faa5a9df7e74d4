"""Which events are worth writing, and as what: pure, given the time.

An occurrence that repeats an event raises its count. Many that differ only in their message
become one. An object that floods is cut short. The numbers are Kubernetes' own.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from livevirt.kube.objects.request import Object

FOLD_WITHIN = timedelta(minutes=10)
SIMILAR = 10  # messages of one object and reason before they are combined
BURST = 100  # events of one object at once; a live change records five or six
REFILL = timedelta(seconds=10)  # for one more after that
REMEMBERED = 4096  # of each thing we keep track of
COMBINED = "(combined from similar events): "
MESSAGE_LIMIT = 1024
_NAME_LIMIT = 253

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An event of an object, before it is written."""

    regarding: Object  # an ObjectReference
    type: str  # Normal or Warning
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Create:
    """Write a new event."""

    identity: Hashable
    event: Object


@dataclass(frozen=True, slots=True)
class Repeat:
    """Raise the count of an event that was written; write `event` if it is gone."""

    identity: Hashable
    name: str
    namespace: str
    patch: Object
    event: Object


@dataclass(slots=True)
class _Written:
    event: Object
    last: datetime


@dataclass(slots=True)
class _Similar:
    last: datetime
    messages: set[str] = field(default_factory=set)


class Folding:
    """Remembers what was written lately; `fold` returns what to write next."""

    def __init__(self, component: str, instance: str = "") -> None:
        self._source = {"component": component} | ({"host": instance} if instance else {})
        self._component, self._instance = component, instance
        self._written: _Recent[_Written] = _Recent(REMEMBERED)
        self._similar: _Recent[_Similar] = _Recent(REMEMBERED)
        self._buckets: _Recent[tuple[float, datetime]] = _Recent(REMEMBERED)

    def fold(self, occurrence: Occurrence, now: datetime) -> Create | Repeat | None:
        """Return what to write for an occurrence, or None if its object has said enough."""
        if not self._spend(_object_of(occurrence), now):
            return None
        message = occurrence.message[:MESSAGE_LIMIT]
        identity: tuple[Hashable, ...] = (
            *_object_of(occurrence), occurrence.type, occurrence.reason
        )  # fmt: skip
        if self._too_similar(identity, message, now):
            message = (COMBINED + message)[:MESSAGE_LIMIT]
        else:
            identity += (message,)
        written = self._written.get(identity)
        if written is None or now - written.last > FOLD_WITHIN:
            event = self._event(occurrence, message, now)
            self._written.put(identity, _Written(event, now))
            return Create(identity, event)
        patch = {
            "count": written.event["count"] + 1,
            "lastTimestamp": _stamp(now),
            "message": message,
        }
        written.event = written.event | patch
        written.last = now
        metadata = written.event["metadata"]
        # Should it be gone, it is written again under a name that was never used.
        fresh = written.event | {"metadata": metadata | {"name": _name(occurrence, message, now)}}
        return Repeat(identity, metadata["name"], metadata["namespace"], patch, fresh)

    def renamed(self, identity: Hashable, name: str) -> None:
        """Take note that an event was written again under another name."""
        written = self._written.get(identity)
        if written is not None:
            metadata = written.event["metadata"] | {"name": name}
            written.event = written.event | {"metadata": metadata}

    def failed(self, identity: Hashable) -> None:
        """Take note that an event could not be written: the next one is a new one."""
        self._written.drop(identity)

    def _spend(self, regarding: Hashable, now: datetime) -> bool:
        tokens, at = self._buckets.get(regarding) or (float(BURST), now)
        tokens = min(float(BURST), tokens + max(timedelta(0), now - at) / REFILL)
        allowed = tokens >= 1
        self._buckets.put(regarding, (tokens - 1 if allowed else tokens, now))
        return allowed

    def _too_similar(self, identity: Hashable, message: str, now: datetime) -> bool:
        similar = self._similar.get(identity)
        if similar is None or now - similar.last > FOLD_WITHIN:
            similar = _Similar(now)
        similar.last = now
        if len(similar.messages) < SIMILAR:
            similar.messages.add(message)
        self._similar.put(identity, similar)
        return message not in similar.messages

    def _event(self, occurrence: Occurrence, message: str, now: datetime) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": _name(occurrence, message, now),
                "namespace": occurrence.regarding.get("namespace") or "default",
            },
            "involvedObject": occurrence.regarding,
            "type": occurrence.type,
            "reason": occurrence.reason,
            "message": message,
            "source": self._source,
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": _stamp(now),
            "lastTimestamp": _stamp(now),
            "count": 1,
        }


class _Recent(Generic[V]):
    """A mapping that forgets what was put into it longest ago."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        if key in self._items:
            self._items.move_to_end(key)
        return self._items.get(key)

    def put(self, key: Hashable, value: V) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._limit:
            self._items.popitem(last=False)

    def drop(self, key: Hashable) -> None:
        self._items.pop(key, None)


def _object_of(occurrence: Occurrence) -> tuple[Hashable, ...]:
    fields = ("apiVersion", "kind", "namespace", "name", "uid", "fieldPath")
    return tuple(occurrence.regarding.get(field, "") for field in fields)


def _name(occurrence: Occurrence, message: str, now: datetime) -> str:
    # The same event has the same name, so writing it twice makes no second one.
    facts = (*_object_of(occurrence), occurrence.type, occurrence.reason, message, now.isoformat())
    digest = hashlib.sha256("\0".join(map(str, facts)).encode()).hexdigest()[:16]
    stem = str(occurrence.regarding.get("name", ""))[: _NAME_LIMIT - 1 - len(digest)].rstrip("-.")
    return f"{stem}.{digest}"


def _stamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
