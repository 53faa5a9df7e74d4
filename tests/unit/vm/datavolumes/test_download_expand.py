"""Streams are unpacked a piece at a time."""

from __future__ import annotations

import gzip
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.vm.datavolumes.download import PIECE, expander
from livevirt.vm.datavolumes.filling import ImportFailed, ImportRefused

PACKERS = {"gzip": gzip.compress, "xz": lzma.compress}


def unpacked(packed: bytes, size: int) -> bytes:
    reader = expander(packed)
    found = b""
    for start in range(0, len(packed), size):
        for piece in reader.feed(packed[start : start + size]):
            assert len(piece) <= PIECE
            found += piece
    reader.close()
    return found


@pytest.mark.parametrize("packer", PACKERS)
@given(content=st.binary(max_size=4000), size=st.integers(1, 5000), members=st.integers(1, 3))
def test_whatever_the_pieces_are_the_content_is_whole(
    packer: str, content: bytes, size: int, members: int
) -> None:
    assert unpacked(PACKERS[packer](content) * members, size) == content * members


@given(content=st.binary(min_size=6).map(lambda each: b"raw" + each), size=st.integers(1, 50))
def test_what_is_not_packed_passes_through(content: bytes, size: int) -> None:
    assert unpacked(content, size) == content


@pytest.mark.parametrize("packer", PACKERS)
def test_a_small_file_that_holds_much_comes_in_pieces(packer: str) -> None:
    assert unpacked(PACKERS[packer](bytes(5 * PIECE)), 2**20) == bytes(5 * PIECE)


@pytest.mark.parametrize("packer", PACKERS)
def test_a_file_that_ends_too_early_is_refused(packer: str) -> None:
    packed = PACKERS[packer](b"content" * 1000)
    with pytest.raises(ImportFailed, match="ends too early"):
        unpacked(packed[: len(packed) // 2], 100)


@pytest.mark.parametrize("packer", PACKERS)
def test_a_damaged_file_is_refused(packer: str) -> None:
    packed = bytearray(PACKERS[packer](b"content" * 1000))
    packed[len(packed) // 2] ^= 0xFF
    with pytest.raises(ImportFailed, match="damaged"):
        unpacked(bytes(packed), 100)


def test_zstd_is_refused_by_name() -> None:
    with pytest.raises(ImportRefused, match="zstd"):
        expander(b"\x28\xb5\x2f\xfd rest")
