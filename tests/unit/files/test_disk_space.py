"""The reserve of the control plane, and what guests may be promised."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

import pytest

from livevirt.files import disk_space
from livevirt.files.reserve import Reserve

MIB = 2**20


def test_given_a_full_disk_then_the_reserve_is_released_and_the_write_repeated(
    tmp_path: Path,
) -> None:
    reserve = Reserve(tmp_path / "reserve", MIB)
    assert reserve.hold()
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= MIB
    attempts = []

    def write() -> str:
        attempts.append(1)
        if reserve.held():
            raise OSError(errno.ENOSPC, "No space left on device")
        return "written"

    assert reserve.spend(write) == "written"
    assert len(attempts) == 2
    with pytest.raises(OSError, match="No space"):
        reserve.spend(lambda: _raise(errno.ENOSPC))  # there is nothing left to release
    assert reserve.hold()
    with pytest.raises(OSError, match="boom"):
        reserve.spend(lambda: _raise(errno.EIO))
    assert reserve.held()


def _raise(number: int) -> None:
    raise OSError(number, "No space left" if number == errno.ENOSPC else "boom")


def test_given_little_space_then_the_reserve_is_not_held_and_nothing_new_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = Reserve(tmp_path / "reserve", MIB)
    monkeypatch.setattr(disk_space, "free", lambda _: MIB - 1)
    assert not reserve.hold()
    assert reserve.shortage()
    monkeypatch.setattr(disk_space, "free", lambda _: 2 * MIB)
    assert not reserve.shortage()
    assert reserve.hold()
    monkeypatch.setattr(disk_space, "free", lambda _: 0)
    assert not reserve.shortage()  # the reserve itself is still there


def test_given_little_space_then_there_is_pressure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "total", lambda _: 100 * MIB)
    monkeypatch.setattr(disk_space, "free", lambda _: 10 * MIB)
    assert not disk_space.pressure(tmp_path)
    monkeypatch.setattr(disk_space, "free", lambda _: 10 * MIB - 1)
    assert disk_space.pressure(tmp_path)
    monkeypatch.setattr(disk_space, "total", lambda _: 2**50)
    monkeypatch.setattr(disk_space, "free", lambda _: 2**30)
    assert not disk_space.pressure(tmp_path)


def a_disk(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_promised_sizes_are_those_that_guests_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "total", lambda _: 10 * MIB)  # 20 MiB may be promised
    folder = tmp_path / "guests" / "uid"
    a_disk(folder / "empty.img", 5 * MIB)
    image = folder / "root.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "7M"], check=True)
    (folder / "link.img").symlink_to("/dev/zero")
    promises = disk_space.Promises([tmp_path / "guests", tmp_path / "missing"])
    assert promises.admit(folder / "new.img", 8 * MIB + 1)
    assert not promises.admit(folder / "new.img", 8 * MIB)


def test_given_a_disk_is_admitted_then_the_next_one_has_less_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "total", lambda _: 10 * MIB)
    promises = disk_space.Promises([tmp_path])
    a_disk(tmp_path / "one/root.img", 15 * MIB)
    assert not promises.admit(tmp_path / "two/root.img", 5 * MIB)
    a_disk(tmp_path / "two/root.img", 5 * MIB)
    assert promises.admit(tmp_path / "three/root.img", 1)
    assert not promises.admit(tmp_path / "two/root.img", 5 * MIB)  # a second attempt at the same


def test_given_disks_were_removed_then_they_are_counted_again_before_a_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "total", lambda _: 10 * MIB)
    promises = disk_space.Promises([tmp_path], clock=lambda: 0.0)
    old = a_disk(tmp_path / "one/root.img", 20 * MIB)
    assert promises.admit(tmp_path / "two/root.img", MIB)
    old.unlink()
    assert not promises.admit(tmp_path / "two/root.img", 20 * MIB)


def test_disks_are_counted_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space, "total", lambda _: 10 * MIB)
    times = [0.0]
    promises = disk_space.Promises([tmp_path], clock=lambda: times[0])
    assert not promises.admit(tmp_path / "one/root.img", MIB)
    claim = a_disk(tmp_path / "claim/disk.img", 20 * MIB)  # made by others
    assert not promises.admit(tmp_path / "one/root.img", MIB)
    times[0] = 60.0
    assert promises.admit(tmp_path / "one/root.img", MIB)
    assert claim.exists()


def test_given_too_much_promised_then_a_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "total", lambda _: 10 * MIB)
    assert not disk_space.refusal(tmp_path, 15 * MIB, 5 * MIB)
    assert disk_space.refusal(tmp_path, 15 * MIB, 6 * MIB)
