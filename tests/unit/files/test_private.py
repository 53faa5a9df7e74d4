"""Permissions of files: created private, and restricted where an earlier release was careless."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from livevirt.files import private
from livevirt.node.images import ImageStore


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture(params=[0o077, 0o022], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_given_any_umask_then_new_directories_can_be_passed_through(
    tmp_path: Path, umask: int
) -> None:
    private.folders(tmp_path / "a" / "b")
    assert [mode(tmp_path / "a"), mode(tmp_path / "a" / "b")] == [0o711, 0o711]
    (tmp_path / "a").chmod(0o750)
    private.folders(tmp_path / "a" / "b")
    assert mode(tmp_path / "a") == 0o750  # somebody decided so


def test_given_readable_files_then_they_are_restricted_and_no_link_is_followed(
    tmp_path: Path,
) -> None:
    root, outside = tmp_path / "guests", tmp_path / "outside"
    (root / "uid").mkdir(parents=True)
    disk, link = root / "uid" / "disk.qcow2", root / "uid" / "link"
    for path in (disk, outside):
        path.write_bytes(b"")
        path.chmod(0o644)
    for folder in (root, root / "uid"):
        folder.chmod(0o755)
    link.symlink_to(outside)
    assert private.restrict([root, tmp_path / "missing", outside / "no-directory"]) == 3
    assert (mode(disk), mode(root), mode(root / "uid"), mode(outside)) == (
        0o600, 0o711, 0o711, 0o644,
    )  # fmt: skip
    assert private.restrict([root]) == 0


def test_given_an_image_store_of_an_earlier_release_then_others_lose_access(
    tmp_path: Path,
) -> None:
    source = tmp_path / "disk.raw"
    source.write_bytes(bytes(1 << 20))
    store = ImageStore(tmp_path / "images")
    image = store.import_(source, "example/disk:1")
    assert mode(image.path) == 0o440
    image.path.chmod(0o444)
    image.path.parent.chmod(0o755)
    (store.root / "index.json").chmod(0o644)
    store.restrict()
    assert mode(image.path) == 0o440
    assert mode(image.path.parent) == 0o710
    assert mode(store.root / "index.json") == 0o600
    assert store.find("example/disk:1") is not None
