"""Measures the store against bare SQLite commits of the same batches, in the same run.

Prints JSON. `ratio` is the store's writes per second over those of a loop that only upserts the
same bytes and commits; `growth` compares a store of many objects with one of few.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from livevirt.kube.store import Key, Put, Store
from livevirt.kube.store.database import CHECKPOINT_PAGES

WRITERS = 16
VALUE = json.dumps({"kind": "ConfigMap", "data": {"text": "x" * 1000}}).encode()


def encode(revision: int) -> bytes:
    return VALUE[:-1] + b',"resourceVersion":"%d"}' % revision


def key(number: int) -> Key:
    return Key("configmaps", f"ns-{number % 10}", f"object-{number:06d}")


async def fill(store: Store, objects: int) -> None:
    for start in range(0, objects, 1000):
        numbers = range(start, min(start + 1000, objects))
        await store.write(*(Put(key(number), None, encode) for number in numbers))


async def update(store: Store, objects: int, writes: int) -> tuple[float, float]:
    """Return writes per second and the mean batch of concurrent read-modify-write loops."""

    async def writer(first: int) -> None:
        for number in range(first, writes, WRITERS):
            target = key(number * 7919 % objects)
            found = store.get(target)
            assert found is not None
            await store.write(Put(target, found.revision, encode))

    commits = store.commits
    start = time.perf_counter()
    # No two loops share an object as long as the count is no multiple of the stride.
    await asyncio.gather(*(writer(first) for first in range(WRITERS)))
    return writes / (time.perf_counter() - start), writes / (store.commits - commits)


def bare(path: Path, objects: int, writes: int, batch: int) -> float:
    """Return writes per second of SQLite alone, doing the least that is durable."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute(
        f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}"
    )  # as the store: compare code
    database.execute("CREATE TABLE t (k TEXT PRIMARY KEY, v BLOB) WITHOUT ROWID")
    database.execute("BEGIN")
    database.executemany(
        "INSERT INTO t VALUES (?, ?)", (("/".join(key(n)), encode(n)) for n in range(objects))
    )
    database.execute("COMMIT")
    start = time.perf_counter()
    for first in range(0, writes, batch):
        database.execute("BEGIN IMMEDIATE")
        for number in range(first, first + batch):
            name = "/".join(key(number * 7919 % objects))
            database.execute("REPLACE INTO t VALUES (?, ?)", (name, encode(number)))
        database.execute("COMMIT")
    rate = writes / (time.perf_counter() - start)
    database.close()
    return rate


def microseconds(action: Callable[[int], object], times: int) -> float:
    start = time.perf_counter()
    for number in range(times):
        action(number)
    return (time.perf_counter() - start) / times * 1e6


async def measure(directory: Path, objects: int, writes: int, rounds: int) -> dict[str, float]:
    path = directory / f"{objects}.db"
    store = Store.open(path)
    await fill(store, objects)
    rates, bares, batches = [], [], []
    for number in range(rounds):  # alternating, so that a noisy neighbour meets both
        rate, batch = await update(store, objects, writes)
        rates.append(rate)
        batches.append(batch)
        peer = directory / f"bare-{objects}-{number}.db"
        bares.append(bare(peer, objects, writes, max(1, round(batch))))
        peer.unlink()
    result = {
        "objects": objects,
        "writes_per_second": round(statistics.median(rates)),
        "bare_writes_per_second": round(statistics.median(bares)),
        "ratio": round(statistics.median(a / b for a, b in zip(rates, bares, strict=True)), 3),
        "writes_per_commit": round(statistics.median(batches), 1),
        "get_us": round(microseconds(lambda n: store.get(key(n * 31 % objects)), 5000), 1),
        "count_us": round(microseconds(lambda _: store.count("configmaps"), 1000), 1),
        "page_500_us": round(microseconds(lambda _: store.list("configmaps", limit=500), 20), 1),
        "list_2000_ms": round(
            microseconds(lambda _: store.list("configmaps", limit=2000), 10) / 1000, 2
        ),
    }
    await store.close()
    start = time.perf_counter()
    await Store.open(path).close()
    result["open_ms"] = round((time.perf_counter() - start) * 1000, 1)
    return result


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--objects", type=int, nargs="+", default=[1000, 50_000])
    arguments.add_argument("--writes", type=int, default=8000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--directory", type=Path, help="on the disk to measure")
    given = arguments.parse_args()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        results = [
            asyncio.run(measure(Path(directory), objects, given.writes, given.rounds))
            for objects in given.objects
        ]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    few, many = results[0], results[-1]
    growth = {
        name: round(many[name] / few[name], 2) for name in ("get_us", "count_us", "page_500_us")
    }
    growth["write"] = round(few["writes_per_second"] / many["writes_per_second"], 2)
    print(
        json.dumps({"results": results, "growth": growth, "rss_grown_mib": grown >> 10}, indent=2)
    )


if __name__ == "__main__":
    main()
