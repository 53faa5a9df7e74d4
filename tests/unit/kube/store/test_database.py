from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from livevirt.kube.store import (
    Store,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreLocked,
    StoreTooNew,
    StoreUnusable,
)
from livevirt.kube.store.schema import MIGRATIONS, migrate, version

from .store_builders import a_key, create, state_of, update


async def fill(path: Path) -> None:
    store = Store.open(path)
    written = await store.write(*(create(f"object-{n}", "text " * 300) for n in range(100)))
    await store.write(*(update(stored) for stored in written[:50]))
    await store.close()


def files(path: Path) -> dict[str, str]:
    """What is on disk, but for the lock, the shared memory and empty logs: they carry no data."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.parent.iterdir()
        if not file.name.endswith((".lock", "-shm")) and file.stat().st_size
    }


def flip(position: Callable[[int], int], length: int = 64) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        start = position(len(data))
        for index in range(start, start + length):
            data[index] ^= 0x55
        path.write_bytes(data)

    return damage


def alter_value(path: Path) -> None:
    """Flip one bit inside values, where SQLite itself would not notice."""
    path.write_bytes(path.read_bytes().replace(b"text text", b"text tdxt"))


def alter_name(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("UPDATE current SET name = 'stranger' WHERE name = 'object-7'")
    database.commit()
    database.close()


def lose_database(path: Path) -> None:
    path.with_name(path.name + "-wal").write_bytes(b"changes")
    path.unlink()


DAMAGE = {
    "the header": flip(lambda size: 0),
    "the first page": flip(lambda size: 100),
    "a page in the middle": flip(lambda size: size // 2 // 4096 * 4096),
    "the last page": flip(lambda size: size - 4096),
    "one bit of a value": alter_value,
    "a name": alter_name,
    "the end cut off": lambda path: os.truncate(path, path.stat().st_size // 2),
    "the database missing beside its log": lose_database,
    "text instead of a database": lambda path: path.write_text("no database " * 100),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_given_damage_when_opened_then_it_is_named_and_left_alone(
    path: Path, damage: Callable[[Path], None]
) -> None:
    await fill(path)
    damage(path)
    before = files(path)
    with pytest.raises(StoreCorrupt, match=rf"^{re.escape(str(path))} is damaged .+ from a backup"):
        Store.open(path)
    assert files(path) == before


async def test_given_a_log_left_by_a_crash_when_the_database_is_damaged_then_both_are_left_alone(
    path: Path, tmp_path: Path
) -> None:
    await fill(path)
    store = Store.open(path)
    await store.write(create("in the log"))
    crashed = Path(shutil.copytree(tmp_path, tmp_path / "crashed")) / "store.db"
    await store.close()
    alter_value(crashed)
    before = files(crashed)
    assert "store.db-wal" in before
    with pytest.raises(StoreCorrupt):
        Store.open(crashed)
    assert files(crashed) == before


async def test_given_a_newer_schema_then_it_is_refused_and_left_alone(path: Path) -> None:
    await fill(path)
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    database.close()
    before = files(path)
    with pytest.raises(StoreTooNew, match="use the newer livevirt"):
        Store.open(path)
    assert files(path) == before


def test_given_another_programs_database_then_it_is_refused_and_left_alone(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE theirs (id INTEGER)")
    database.close()
    before = files(path)
    with pytest.raises(StoreForeign, match="is not a livevirt database"):
        Store.open(path)
    assert files(path) == before


async def test_given_an_open_store_when_opened_again_then_its_process_is_named(
    store: Store, path: Path
) -> None:
    program = (
        "import sys, pathlib, livevirt.kube.store as s; s.Store.open(pathlib.Path(sys.argv[1]))"
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(path), stderr=subprocess.PIPE
    )
    _, said = await child.communicate()
    assert f"StoreLocked: {path} is in use by process {os.getpid()} (" in said.decode()
    with pytest.raises(StoreLocked):
        Store.open(path)
    await store.write(create("a"))  # and the first is not disturbed


async def test_given_a_closed_store_then_it_can_be_opened_again(store: Store, path: Path) -> None:
    await store.close()
    await Store.open(path).close()


async def test_given_another_program_writing_then_the_write_says_so_and_can_be_repeated(
    store: Store, path: Path
) -> None:
    stranger = sqlite3.connect(path, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreLocked, match="is locked by another program"):
        await store.write(create("a"))
    stranger.execute("ROLLBACK")
    stranger.close()
    await store.write(create("a"))


def test_given_no_directory_then_the_error_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="No such file or directory"):
        Store.open(tmp_path / "missing" / "store.db")


def test_given_a_directory_in_its_place_then_the_error_names_the_path(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError, match=re.escape(str(path))):
        Store.open(path)


def test_a_failed_open_lets_go_of_the_lock(path: Path) -> None:
    path.write_text("no database " * 100)
    for _ in range(2):
        with pytest.raises(StoreCorrupt):
            Store.open(path)
    path.unlink()
    asyncio.run(Store.open(path).close())


async def test_the_files_are_private_and_every_commit_is_synced(store: Store, path: Path) -> None:
    await store.write(create("a"))
    for file in (path, path.with_name("store.db-wal"), path.with_name("store.db.lock")):
        assert file.stat().st_mode & 0o077 == 0
    database = store._writer._database
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database.execute("PRAGMA synchronous").fetchone() == (2,)


async def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    odd = tmp_path / "50% ?&#ä" / "store.db"
    odd.parent.mkdir()
    store = Store.open(odd)
    await store.write(create("a"))
    assert odd.stat().st_size
    await store.close()


def add_note(database: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE note (text TEXT)")


def give_up(database: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE half (text TEXT)")
    raise RuntimeError("half way")


async def test_given_an_older_schema_then_it_is_migrated_with_its_content(path: Path) -> None:
    await fill(path)
    database = sqlite3.connect(path, isolation_level=None)
    newest = len(MIGRATIONS)
    with pytest.raises(RuntimeError):
        migrate(database, (*MIGRATIONS, add_note, give_up))
    assert version(database) == newest  # all or nothing
    migrate(database, (*MIGRATIONS, add_note))
    migrate(database, (*MIGRATIONS, add_note))
    assert version(database) == newest + 1
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    assert "note" in tables
    assert "half" not in tables
    database.execute(f"PRAGMA user_version = {newest}")
    database.close()
    store = Store.open(path)
    assert len(state_of(store)) == 100
    assert store.get(a_key("object-1"))
    await store.close()
