"""Embedded storage on SQLite: one revision counter, durable writes, watch from a kept revision.

What the package promises:

- **Durable.** `Store.write` returns after the commit is on disk (WAL, `synchronous=FULL`): an
  acknowledged write survives kill -9 and power loss. A write that raised `StoreError`, or whose
  caller was cancelled, may or may not be there: read before acting again.
- **Ordered.** One counter numbers every change. It starts at 1 for the empty store, so the first
  write gets 2, and it never goes back or gives a published number away twice, over restarts and
  crashes too. A number handed to an `encode` whose batch then failed was never published and is
  used again.
- **Compare and swap.** Each operation names the revision it expects; one call is all or nothing.
  Calls that wait together are committed together, and one that fails its precondition takes no
  other with it. If the commit itself fails, every call of that batch raises and nothing is applied.
- **Watchable.** A watch gives every matching change after a revision once and in order: first the
  kept history, then live ones. History older than `Retention` allows is compacted, and asking for
  it raises `Compacted`.
- **Careful.** A corrupt, foreign, newer or locked database is refused by name and left untouched.
  One that another release opened last is copied before anything in it changes (`backup`).

How it works. Everything runs in the event loop's thread, except the commit, which waits for the
disk: that is done by one writer thread, one batch at a time, while the loop collects the next. So
a batch costs two thread switches however many writes it has. SQLite keeps one row per change in
`log` (the value is written once) and one small row per object in `current` that names the change
in force. An object's value before a change is the row that the change supersedes, which compaction
keeps as long as the change itself; undoing the changes after R gives the state at R.

Reads use a read-only connection of their own. A commit becomes visible to them a moment before the
loop publishes it to watches, so a read may be *newer* than the last publication, never older, and
never half a batch. `Page.revision` is read in the same snapshot as the items, and `Store.revision`
is never less than a revision some read has shown. `watch(since=page.revision)` is right in that
moment too: live events up to `since` are not handed out again.

Methods are called in the loop's thread. Values are opaque bytes, except to `Event.object`.
"""

from livevirt.kube.store.batch import Retention
from livevirt.kube.store.errors import (
    Compacted,
    Exists,
    Missing,
    NotYet,
    Overrun,
    Precondition,
    Stale,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreLocked,
    StoreTooNew,
    StoreUnusable,
)
from livevirt.kube.store.reader import Held, Mirror
from livevirt.kube.store.records import Delete, Encode, Event, Key, Page, Put, Stored
from livevirt.kube.store.store import Store
from livevirt.kube.store.watch import Watch

__all__ = [
    "Compacted",
    "Delete",
    "Encode",
    "Event",
    "Exists",
    "Held",
    "Key",
    "Mirror",
    "Missing",
    "NotYet",
    "Overrun",
    "Page",
    "Precondition",
    "Put",
    "Retention",
    "Stale",
    "Store",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreForeign",
    "StoreFull",
    "StoreLocked",
    "StoreTooNew",
    "StoreUnusable",
    "Stored",
    "Watch",
]
