"""Raw images: made sparse, grown and never cut."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livevirt.files import raw_file
from livevirt.files.raw_file import MIB


def test_an_image_is_made_sparse_and_only_if_there_is_none(tmp_path: Path) -> None:
    disk = tmp_path / "disk.img"
    raw_file.ensure(disk, 64 * MIB)
    assert (disk.stat().st_size, disk.stat().st_blocks) == (64 * MIB, 0)
    disk.write_bytes(b"kept")
    raw_file.ensure(disk, 2)
    assert disk.read_bytes() == b"kept"


def test_given_another_makes_it_meanwhile_then_what_is_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, grow = tmp_path / "disk.img", raw_file.grow

    def overtaken(path: Path, size: int) -> None:
        monkeypatch.setattr(raw_file, "grow", grow)
        disk.write_bytes(b"kept")
        raise FileNotFoundError(path)

    monkeypatch.setattr(raw_file, "grow", overtaken)
    raw_file.ensure(disk, MIB)
    assert disk.stat().st_size == MIB
    assert disk.read_bytes().rstrip(b"\0") == b"kept"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 8 * MIB), min_size=1, max_size=6))
def test_given_any_wishes_then_it_is_as_large_as_the_largest(
    tmp_path_factory: pytest.TempPathFactory, wishes: list[int]
) -> None:
    disk = tmp_path_factory.mktemp("raw") / "disk.img"
    disk.write_bytes(b"start")
    for size in wishes:
        raw_file.grow(disk, size)
    assert raw_file.size(disk) == max(5, *wishes)
    assert disk.read_bytes().rstrip(b"\0") == b"start"


def test_there_is_no_size_of_what_is_not_there(tmp_path: Path) -> None:
    assert raw_file.size(tmp_path / "none") is None
    with pytest.raises(FileNotFoundError):
        raw_file.grow(tmp_path / "none", MIB)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_regular_file_is_left_alone(tmp_path: Path, kind: str) -> None:
    disk, secret = tmp_path / "disk.img", tmp_path / "secret"
    secret.write_text("secret")
    match kind:
        case "link":
            disk.symlink_to(secret)
        case "pipe":
            os.mkfifo(disk)
        case "folder":
            disk.mkdir()
    for change in (raw_file.grow, raw_file.ensure):
        with pytest.raises(OSError, match=r"disk\.img"):
            change(disk, MIB)
    assert secret.read_text() == "secret"


@pytest.mark.parametrize(
    ("room", "size"), [(0, 0), (MIB - 1, 0), (MIB, MIB), (3 * MIB + 9, 3 * MIB)]
)
def test_a_disk_has_whole_mebibytes(room: int, size: int) -> None:
    assert raw_file.whole(room) == size
