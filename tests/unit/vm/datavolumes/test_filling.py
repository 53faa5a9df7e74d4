"""A volume's disk is there complete, or not at all."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from livevirt.vm.datavolumes import filling
from livevirt.vm.datavolumes.filling import ImportFailed, ImportRefused

MIB = 2**20

SIZES = {
    "an empty disk fills whole mebibytes": (10 * MIB + 5, 0, 10 * MIB),
    "a small image grows with the claim": (10 * MIB, MIB, 10 * MIB),
    "an image of the claim's odd size fits": (10 * MIB + 512, 10 * MIB + 512, 10 * MIB + 512),
    "an image ends with a sector": (10 * MIB + 1024, 10 * MIB + 5, 10 * MIB + 512),
}


@pytest.mark.parametrize(("room", "virtual", "size"), SIZES.values(), ids=SIZES)
def test_disk_size(room: int, virtual: int, size: int) -> None:
    assert filling.disk_size(room, virtual) == size


def test_an_image_larger_than_its_claim_is_refused() -> None:
    with pytest.raises(ImportRefused, match="a larger claim is needed"):
        filling.disk_size(10 * MIB, 10 * MIB + 1)


def names_in(directory: Path) -> list[str]:
    return [each.name for each in directory.iterdir()]


async def fill(directory: Path, content: bytes) -> None:
    async with filling.scratch(directory) as place:
        candidate = place / "disk.img"
        candidate.write_bytes(content)
        await filling.publish(candidate, directory, MIB, preallocate=False)


async def test_a_disk_gets_its_size_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    await fill(tmp_path, b"content")
    assert names_in(tmp_path) == ["disk.img"]
    disk = tmp_path / "disk.img"
    assert disk.read_bytes() == b"content" + bytes(MIB - 7)
    assert disk.stat().st_mode & 0o777 == 0o600


async def test_a_disk_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "disk.img").write_bytes(b"a guest's")
    with pytest.raises(ImportRefused, match="has a disk already"):
        await fill(tmp_path, b"content")
    assert (tmp_path / "disk.img").read_bytes() == b"a guest's"
    assert names_in(tmp_path) == ["disk.img"]


async def test_only_one_fills_a_volume_at_a_time(tmp_path: Path) -> None:
    async with filling.scratch(tmp_path) as place:
        with pytest.raises(ImportFailed, match="being filled by another process"):
            await fill(tmp_path, b"content")
        assert place.exists(), "the first one's work is not disturbed"
    await fill(tmp_path, b"content")


async def test_what_a_killed_filler_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".import-dead"
    left.mkdir()
    (left / "disk.img").write_bytes(b"half of")
    await fill(tmp_path, b"content")
    assert names_in(tmp_path) == ["disk.img"]


async def test_a_cancelled_filler_leaves_nothing(tmp_path: Path) -> None:
    working = asyncio.Event()

    async def work() -> None:
        async with filling.scratch(tmp_path) as place:
            (place / "disk.img").write_bytes(b"half of")
            working.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await working.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert names_in(tmp_path) == []


async def test_preallocated_space_is_really_taken(tmp_path: Path) -> None:
    async with filling.scratch(tmp_path) as place:
        await filling.publish(place / "disk.img", tmp_path, MIB, preallocate=True)
    assert os.stat(tmp_path / "disk.img").st_blocks * 512 >= MIB
