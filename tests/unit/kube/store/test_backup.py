"""An upgrade copies the database first, and a rollback puts the copy back."""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from livevirt.kube.store import Store, StoreForeign, StoreFull, StoreLocked, StoreUnusable, backup
from livevirt.kube.store.backup import ROLLBACK, UPGRADE, backups, restore
from livevirt.kube.store.database import connect
from livevirt.kube.store.schema import MIGRATIONS, release, version

from ....guest.previous_release import load
from .store_builders import create, state_of


@pytest.fixture
def previous(path: Path) -> Path:
    load(path)
    return path


def content(path: Path) -> list[str]:
    """Return everything in a database, but for what tells its version."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return [line for line in database.iterdump() if '"release"' not in line]


def described(path: Path) -> tuple[int, str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return version(database), release(database)


def opened_by(path: Path, name: str) -> None:
    for connection in connect(path, name):
        connection.close()


async def test_given_data_of_the_previous_release_then_it_is_copied_and_upgraded(
    previous: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = content(previous)
    assert described(previous) == (1, "")
    with caplog.at_level(logging.INFO, "livevirt"):
        await Store.open(previous).close()
        await Store.open(previous).close()  # by the same release: nothing to do
    (copy,) = backups(previous)
    assert (copy.reason, copy.schema, copy.release) == (UPGRADE, 1, "")
    assert content(copy.path) == before
    assert [line for line in content(previous) if "TABLE release" not in line] == before
    assert described(previous)[0] == len(MIGRATIONS)
    assert [record.msg for record in caplog.records] == ["database backed up before an upgrade"]
    assert copy.path.stat().st_mode & 0o077 == 0
    assert [file.name for file in copy.path.parent.iterdir()] == [copy.path.name]


async def test_given_data_of_the_previous_release_then_every_object_is_there(
    previous: Path,
) -> None:
    store = Store.open(previous)
    (vm,) = store.list("virtualmachines.kubevirt.io").items
    assert json.loads(vm.value)["spec"]["template"]["spec"]["volumes"][-1]["name"] == "alpha"
    assert store.count("virtualmachineinstances.kubevirt.io") == 1
    assert store.count("nodes") == 1
    await store.close()


async def test_a_rollback_restores_what_was_there_and_keeps_what_it_replaces(
    previous: Path,
) -> None:
    before = content(previous)
    store = Store.open(previous)
    await store.write(create("later"))
    await store.close()
    after = content(previous)
    replaced = restore(previous, backups(previous)[0].path)
    assert described(previous) == (1, "")
    assert content(previous) == before
    assert replaced is not None
    assert content(replaced) == after
    assert [each.reason for each in backups(previous)] == [ROLLBACK, UPGRADE]
    restore(previous, replaced)  # and the way back
    store = Store.open(previous)
    assert state_of(store)
    await store.close()


def test_a_rollback_replaces_a_database_that_is_gone(previous: Path) -> None:
    before = content(previous)
    opened_by(previous, "0.2.0")
    previous.unlink()
    assert restore(previous, backups(previous)[0].path) is None
    assert content(previous) == before
    assert previous.stat().st_mode & 0o077 == 0


async def test_given_a_server_runs_then_nothing_is_restored(previous: Path) -> None:
    store = Store.open(previous)
    (copy,) = backups(previous)
    with pytest.raises(StoreLocked, match="is in use by process"):
        restore(previous, copy.path)
    await store.write(create("a"))
    await store.close()


RELEASES = {
    "a new one": (["0.2.0"], 0),
    "the same": (["0.2.0", "0.2.0"], 0),
    "a newer, of the same schema": (["0.2.0", "0.3.0"], 1),
    "an older, of the same schema": (["0.3.0", "0.2.0"], 1),
    "two upgrades": (["0.2.0", "0.3.0", "0.4.0"], 2),
}


@pytest.mark.parametrize(("releases", "copies"), RELEASES.values(), ids=RELEASES)
def test_every_change_of_release_takes_one_copy(
    path: Path, releases: list[str], copies: int
) -> None:
    for name in releases:
        opened_by(path, name)
    assert described(path) == (len(MIGRATIONS), releases[-1])
    assert len(backups(path)) == copies
    if copies:
        assert backups(path)[0].release == releases[-2]


def test_given_no_copy_can_be_made_then_nothing_is_upgraded(previous: Path) -> None:
    (previous.parent / backup.FOLDER).write_text("in the way")
    before = previous.read_bytes()
    with pytest.raises(StoreUnusable, match=r"cannot back up .* nothing was changed"):
        Store.open(previous)
    assert previous.read_bytes() == before


def test_given_the_disk_is_full_then_nothing_is_upgraded(
    previous: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(*args: object, **more: object) -> sqlite3.Connection:
        connection = sqlite3.Connection(*args, **more)  # type: ignore[arg-type]
        connection.execute("PRAGMA max_page_count = 2")
        return connection

    before = previous.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(
            backup, "sqlite3", type("full", (), {"connect": small, "Error": sqlite3.Error})
        )
        with pytest.raises(StoreFull):
            Store.open(previous)
    assert previous.read_bytes() == before
    assert list((previous.parent / backup.FOLDER).iterdir()) == []


async def test_what_a_crash_left_is_neither_listed_nor_kept(previous: Path) -> None:
    folder = previous.parent / backup.FOLDER
    folder.mkdir()
    (folder / ".upgrade-20270131T120000.000000Z.db.partial").write_text("half")
    (folder / "notes.db").write_text("not ours")
    assert backups(previous) == []
    await Store.open(previous).close()
    (copy,) = backups(previous)
    assert sorted(file.name for file in folder.iterdir()) == sorted(["notes.db", copy.path.name])


def test_another_programs_database_is_not_restored(previous: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.db"
    with closing(sqlite3.connect(theirs)) as database:
        database.execute("CREATE TABLE theirs (id INTEGER)")
    before = previous.read_bytes()
    with pytest.raises(StoreForeign, match="is not a backup"):
        restore(previous, theirs)
    assert previous.read_bytes() == before
