"""An acknowledged write survives the death of its process at any moment."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from livevirt.kube.store import Key, Put, Retention, Store

WRITERS = 8
OBJECTS = 5  # of each writer
# Small enough that compaction and checkpoints meet their death too.
KEEP = Retention(revisions=50, age=0, maximum=100)


def encode(count: int) -> bytes:
    return b"%d " % count + b"x" * 2000


async def child(path: Path) -> None:
    """Count up objects for ever, each acknowledged count a line on standard output."""
    store = Store.open(path, keep=KEEP)

    async def writer(number: int) -> None:
        for turn in itertools.count():
            key = Key("counters", f"writer-{number}", f"object-{turn % OBJECTS}")
            found = store.get(key)
            count = int(found.value.split()[0]) + 1 if found else 1
            expected = found.revision if found else None
            (stored,) = await store.write(Put(key, expected, lambda _, n=count: encode(n)))
            # One write of one line: either all of it reaches the pipe or nothing.
            os.write(1, f"{key.namespace} {key.name} {stored.revision} {count}\n".encode())

    await asyncio.gather(*(writer(number) for number in range(WRITERS)))


def run_and_kill(path: Path, after: int) -> list[bytes]:
    """Kill a writing process after so many acknowledgements; return all it gave."""
    with subprocess.Popen([sys.executable, __file__, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        lines = list(itertools.islice(process.stdout, after))
        process.send_signal(signal.SIGKILL)
        return lines + list(process.stdout)  # it may have got further before it died


async def survive(path: Path, chance: random.Random, rounds: int) -> None:
    known: dict[Key, tuple[int, int]] = {}  # revision and count, acknowledged or seen after a crash
    newest = 1
    for _ in range(rounds):
        lines = run_and_kill(path, after=chance.randint(1, 600))
        revisions = []
        for line in lines:
            namespace, name, revision, count = line.decode().split()
            known[Key("counters", namespace, name)] = (int(revision), int(count))
            revisions.append(int(revision))
        assert len(set(revisions)) == len(revisions)
        assert min(revisions) > newest, "a revision was given out again after a crash"

        store = Store.open(path, keep=KEEP)
        assert store.revision >= max(revisions)
        newest = store.revision
        for key, (revision, count) in known.items():
            found = store.get(key)
            assert found is not None, f"{key} was acknowledged and is gone"
            # Each writer has at most one write under way, which may have made it.
            extra = int(found.value.split()[0]) - count
            assert extra == (0 if found.revision == revision else 1)
        page = store.list("counters")
        known = {i.key: (i.revision, int(i.value.split()[0])) for i in page.items}
        assert len(page.items) == store.count("counters")
        at_oldest = store.list("counters", revision=store.oldest).items
        state = {item.key: item.value for item in at_oldest}
        watch = store.watch("counters", since=store.oldest)
        while watch.progress < store.revision:
            for event in await anext(watch):
                assert event.previous == state.get(event.key)
                state[event.key] = event.value
        assert state == {item.key: item.value for item in page.items}
        await store.close()


async def test_given_kill_9_at_any_moment_then_acknowledged_writes_survive(tmp_path: Path) -> None:
    await survive(tmp_path / "store.db", random.Random(20), rounds=4)


@pytest.mark.soak
async def test_given_fifty_kills_then_acknowledged_writes_survive(tmp_path: Path) -> None:
    await survive(tmp_path / "store.db", random.Random(50), rounds=50)


if __name__ == "__main__":
    asyncio.run(child(Path(sys.argv[1])))
