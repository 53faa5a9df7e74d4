from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from livevirt.kube.client.interface import Client
from livevirt.kube.controllers import events
from livevirt.kube.controllers.events import (
    KEEP,
    LONGEST,
    SHORTEST,
    Expiry,
    Times,
    happened,
    next_sweep,
)
from livevirt.kube.objects.kind import Kind
from livevirt.kube.store import Delete, Key, Put, Store

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MADE = {"metadata": {"uid": "u", "creationTimestamp": "2026-01-01T08:00:00Z"}}

MOMENTS = {
    "given only its creation, then that": ({}, 8),
    "given a last time, then that": ({"lastTimestamp": "2026-01-01T10:00:00Z"}, 10),
    "given a time with microseconds, then that": (
        {"eventTime": "2026-01-01T09:00:00.000000Z", "lastTimestamp": None}, 9),
    "given a series, then the last of it": (
        {"eventTime": "2026-01-01T09:00:00.000000Z",
         "series": {"count": 2, "lastObservedTime": "2026-01-01T11:00:00.000000Z"}}, 11),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "hour"), MOMENTS.values(), ids=MOMENTS)
def test_when_an_event_last_happened(fields: dict[str, Any], hour: int) -> None:
    event = msgspec.json.decode(msgspec.json.encode(MADE | fields), type=Times)
    assert happened(event) == datetime(2026, 1, 1, hour, tzinfo=UTC)


def test_the_next_sweep_is_when_the_oldest_expires_within_limits() -> None:
    assert next_sweep(None, NOON) == LONGEST
    assert next_sweep(NOON - KEEP + timedelta(minutes=3), NOON) == timedelta(minutes=3)
    assert next_sweep(NOON - KEEP + timedelta(seconds=1), NOON) == SHORTEST
    assert next_sweep(NOON, NOON) == LONGEST


class _Deleting:
    """A client that deletes from a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def delete_unchanged(self, kind: Kind, name: str, namespace: str, **_: str) -> None:
        stored = self._store.get(Key(kind.resource, namespace, name))
        assert stored is not None
        await self._store.write(Delete(stored.key, stored.revision, lambda _: b"{}"))


async def test_given_events_beyond_the_limit_then_the_oldest_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_BYTES", 5000)
    store = Store.open(tmp_path / "store.db")
    for minute in range(10):
        moment = f"2026-01-01T11:{40 + minute}:00Z"
        value = msgspec.json.encode(MADE | {"lastTimestamp": moment, "message": "x" * 1000})
        await store.write(Put(Key("events", "default", f"e{minute}"), None, lambda _, v=value: v))
    await Expiry(cast(Client, _Deleting(store)), store, lambda: NOON).sweep()
    left = [item.key.name for item in store.list("events").items]
    assert left == ["e6", "e7", "e8", "e9"]
    await store.close()
