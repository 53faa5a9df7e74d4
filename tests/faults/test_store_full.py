"""A disk that is really full."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from livevirt.kube.store import Key, Put, Store, Stored, StoreFull

VALUE = b"x" * 10_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", tmp_path], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting a tmpfs needs root: {mounted.stderr.decode().strip()}")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


def create(name: str) -> Put:
    return Put(Key("configmaps", "default", name), None, lambda _: VALUE)


async def test_given_a_full_disk_then_writes_fail_clearly_reads_go_on_and_space_cures_it(
    small_disk: Path,
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    store = Store.open(small_disk / "store.db")
    acknowledged: list[Stored] = []

    async def write_on() -> None:
        for number in range(1000):
            acknowledged.extend(await store.write(create(str(number))))

    with pytest.raises(StoreFull, match=r"no space left to write .*store\.db: the change was not"):
        await write_on()
    assert acknowledged
    revision = store.revision
    failed = await asyncio.gather(
        *(store.write(create(f"again-{number}")) for number in range(8)), return_exceptions=True
    )
    assert {type(outcome) for outcome in failed} == {StoreFull}
    assert all(store.get(stored.key) == stored for stored in acknowledged)
    assert store.revision == revision
    assert store.count("configmaps") == len(acknowledged)

    ballast.unlink()
    acknowledged += await store.write(create("after"))
    assert acknowledged[-1].revision == revision + 1
    await store.close()

    store = Store.open(small_disk / "store.db")
    assert {item.key for item in store.list("configmaps").items} == {s.key for s in acknowledged}
    await store.close()


async def test_given_a_disk_full_before_the_first_start_then_it_says_so(small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "ballast").write_bytes(bytes(4 << 20))
    with pytest.raises(Exception, match=r"store\.db") as refused:
        Store.open(small_disk / "store.db")
    assert "o space left" in str(refused.value)
    (small_disk / "ballast").unlink()
    await Store.open(small_disk / "store.db").close()
