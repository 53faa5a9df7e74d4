"""Removes events an hour after they last happened, and the oldest ones when they take too much."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import msgspec

from livevirt.errors import ApiError, Conflict, NotFound, StoreError
from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.controllers import stored
from livevirt.kube.objects import core, times
from livevirt.kube.store import Key, Store

log = logging.getLogger(__name__)

KEEP = timedelta(hours=1)
SHORTEST, LONGEST = timedelta(minutes=1), timedelta(minutes=5)  # between two sweeps
MOST_BYTES = 32 * 2**20  # of all events together; a flood of them must not fill the disk
AT_ONCE = 64  # deletions under way together, so that the store commits them together


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    resource_version: str = ""
    creation_timestamp: str | None = None


class _Series(msgspec.Struct, rename="camel"):
    last_observed_time: str | None = None


class Times(msgspec.Struct, rename="camel"):
    """An event without its message."""

    metadata: _Metadata
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None


_decoder = msgspec.json.Decoder(Times)
_NEVER = datetime.min.replace(tzinfo=UTC)


def happened(event: Times) -> datetime:
    """Return when the event last happened, if it is recorded."""
    series = event.series.last_observed_time if event.series else None
    said = [text for text in (series, event.last_timestamp, event.event_time) if text]
    if not said and event.metadata.creation_timestamp:
        said = [event.metadata.creation_timestamp]
    return max((times.parse_time(text) for text in said), default=_NEVER)


def next_sweep(oldest: datetime | None, now: datetime) -> timedelta:
    """Return how long to wait when `oldest` is the first of the events kept."""
    if oldest is None:
        return LONGEST
    return min(max(oldest + KEEP - now, SHORTEST), LONGEST)


class Expiry:
    """Sweeps through the stored events now and then, and keeps nothing in between."""

    def __init__(self, client: Client, store: Store, now: Now) -> None:
        self._client, self._store, self._now = client, store, now

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            wait = SHORTEST
            try:
                wait = await self.sweep()
            except (ApiError, StoreError) as error:
                log.warning("sweep of events failed", extra={"error": str(error)})
            await asyncio.sleep(wait.total_seconds())

    async def sweep(self) -> timedelta:
        """Delete the events that are too old or too many; return when to look again."""
        now = self._now()
        kept: list[tuple[datetime, int, Key, Times]] = []
        expired: list[tuple[Key, Times]] = []
        size = 0
        async for key, value in stored.scan(self._store, core.EVENT.resource):
            event = _decoder.decode(value)
            moment = happened(event)
            if moment + KEEP <= now:
                expired.append((key, event))
            else:
                kept.append((moment, len(value), key, event))
                size += len(value)
            if len(expired) >= AT_ONCE:
                await self._delete(expired)
                expired = []
        kept.sort(key=lambda each: each[0], reverse=True)
        while size > MOST_BYTES:
            _, length, key, event = kept.pop()
            size -= length
            expired.append((key, event))
        await self._delete(expired)
        return next_sweep(kept[-1][0] if kept else None, now)

    async def _delete(self, expired: list[tuple[Key, Times]]) -> None:
        for start in range(0, len(expired), AT_ONCE):
            together = expired[start : start + AT_ONCE]
            await asyncio.gather(*(self._delete_one(key, event) for key, event in together))

    async def _delete_one(self, key: Key, event: Times) -> None:
        meta = event.metadata
        try:
            await self._client.delete_unchanged(
                core.EVENT, key.name, key.namespace,
                uid=meta.uid, resource_version=meta.resource_version,
            )  # fmt: skip
        except (NotFound, Conflict):
            return  # gone already, or it has just happened again
