"""Files as block devices, on the loop driver of this machine."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from livevirt.files import loop_device

MIB = 2**20


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    if loop_device.problem():
        pytest.skip(loop_device.problem())
    disk = tmp_path / "disk.img"
    disk.write_bytes(bytes(MIB))
    yield disk
    loop_device.release(disk)
    goes(disk)


def devices_of(file: Path) -> list[str]:
    """Return the loop devices that are a file."""
    listed = Path("/sys/block").glob("loop*/loop/backing_file")
    return [each.parts[3] for each in listed if each.read_text().strip() == str(file)]


def goes(file: Path) -> None:
    """Expect the device of a file to go; others of this machine may have it open for a moment."""
    deadline = time.monotonic() + 30
    while devices_of(file):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_given_no_loop_driver_then_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_device, "_CONTROL", "/dev/null/none")
    why = loop_device.problem.__wrapped__()
    assert why == "no loop device can be made (Not a directory: /dev/null/none)"


def test_what_is_written_to_the_device_is_in_the_file(file: Path) -> None:
    node = loop_device.attach(file)
    assert stat.S_ISBLK(node.stat().st_mode)
    with node.open("r+b", buffering=0) as device:
        device.write(b"hello" + bytes(507))
        os.fsync(device)
    assert file.read_bytes()[:5] == b"hello"


def test_there_is_one_device_of_a_file_and_it_grows_with_it(file: Path) -> None:
    node = loop_device.attach(file)
    with node.open("rb", buffering=0) as device:
        os.truncate(file, 3 * MIB)
        assert loop_device.attach(file) == node
        assert device.seek(0, os.SEEK_END) == 3 * MIB
    assert len(devices_of(file)) == 1


def test_given_it_is_open_when_released_then_it_goes_with_its_last_user(file: Path) -> None:
    with loop_device.attach(file).open("rb", buffering=0):
        loop_device.release(file)
        assert len(devices_of(file)) == 1
    goes(file)
    loop_device.release(file)  # again, which changes nothing


def test_given_no_node_can_be_made_then_no_device_is_left(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "mknod", refuse)
    with pytest.raises(PermissionError):
        loop_device.attach(file)
    goes(file)


def test_given_it_is_to_go_when_wanted_again_then_it_stays(file: Path) -> None:
    with loop_device.attach(file).open("rb", buffering=0):
        loop_device.release(file)
        loop_device.attach(file)
    assert len(devices_of(file)) == 1


def test_given_a_node_left_behind_then_a_device_is_made_anew(file: Path) -> None:
    node = loop_device.attach(file)
    loop_device.release(file)
    goes(file)
    assert node.exists()
    assert loop_device.attach(file) == node
    assert len(devices_of(file)) == 1


def test_given_the_number_is_another_files_by_now_then_that_one_is_left_alone(file: Path) -> None:
    other = file.with_name("other.img")
    other.write_bytes(bytes(MIB))
    node = loop_device.attach(other)
    node.rename(file.with_suffix(".dev"))
    loop_device.release(file)
    assert len(devices_of(other)) == 1
    own = loop_device.attach(file)
    assert len(devices_of(file)) == 1
    assert own.stat().st_rdev != 0
    number = devices_of(other)[0]
    os.mknod(other.with_suffix(".dev"), 0o600 | stat.S_IFBLK, os.stat(f"/dev/{number}").st_rdev)
    loop_device.release(other)
    goes(other)
