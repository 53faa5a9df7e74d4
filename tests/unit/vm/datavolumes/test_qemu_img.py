"""Images of strangers are looked at before QEMU opens them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from livevirt.vm.datavolumes import qemu_img
from livevirt.vm.datavolumes.filling import ImportFailed, ImportRefused

MIB = 2**20
needs_qemu_img = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is missing")


def create(path: Path, *options: str, size: str = "1M") -> Path:
    subprocess.run(["qemu-img", "create", "-q", *options, str(path), size], check=True)
    return path


@pytest.mark.parametrize("start", [b"KDMV", b"# Disk DescriptorFile", b"vhdxfile", b"conectix"])
def test_other_formats_are_refused_by_name(start: bytes) -> None:
    with pytest.raises(ImportRefused, match="unsupported image format"):
        qemu_img.format_of(start + bytes(200))


def test_what_starts_like_nothing_known_is_raw() -> None:
    assert qemu_img.format_of(b"\xebc\x90boot") == "raw"
    assert qemu_img.format_of(b"") == "raw"


def test_a_qcow2_shorter_than_its_header_is_refused() -> None:
    with pytest.raises(ImportRefused, match="ends within its header"):
        qemu_img.format_of(b"QFI\xfb\0\0\0\3")


@needs_qemu_img
async def test_a_qcow2_that_stands_alone_is_taken(tmp_path: Path) -> None:
    path = create(tmp_path / "a:b.qcow2", "-f", "qcow2", size="3M")
    assert await qemu_img.probe(path) == qemu_img.Image(path, "qcow2", 3 * MIB)


@needs_qemu_img
async def test_a_qcow2_that_needs_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(MIB))
    backed = create(tmp_path / "backed", "-f", "qcow2", "-F", "raw", "-b", str(tmp_path / "secret"))
    split = create(tmp_path / "split", "-f", "qcow2", "-o", f"data_file={tmp_path / 'data'}")
    with pytest.raises(ImportRefused, match="no backing file"):
        await qemu_img.probe(backed)
    with pytest.raises(ImportRefused, match="no external data file"):
        await qemu_img.probe(split)


@needs_qemu_img
async def test_a_damaged_qcow2_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_bytes(b"QFI\xfb" + b"\0\0\0\3" + bytes(200))
    with pytest.raises(ImportRefused, match="cannot be read"):
        await qemu_img.probe(path)


@needs_qemu_img
async def test_converting_tells_how_far_it_is(tmp_path: Path) -> None:
    source = create(tmp_path / "disk.qcow2", "-f", "qcow2")
    told: list[float] = []
    image = await qemu_img.probe(source)
    await qemu_img.convert(image, tmp_path / "disk.raw", told.append)
    assert told[-1] == 100.0
    assert (tmp_path / "disk.raw").stat().st_size == MIB


@needs_qemu_img
async def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    image = await qemu_img.probe(create(tmp_path / "disk.qcow2", "-f", "qcow2"))
    with pytest.raises(ImportFailed, match="could not be converted"):
        await qemu_img.convert(image, tmp_path / "missing" / "disk.raw", lambda _: None)


@needs_qemu_img
async def test_without_qemu_img_it_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create(tmp_path / "disk.qcow2", "-f", "qcow2")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImportFailed, match=r"apt-get install .* qemu-utils"):
        await qemu_img.probe(path)
