"""Turns a stream that may be compressed by gzip or xz into what it holds, a piece at a time."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator
from typing import Protocol

from livevirt.vm.datavolumes.filling import ImportFailed, ImportRefused

PIECE = 2**20  # at most so many bytes at once: a small file may expand to a great deal
MAGIC = 6  # bytes needed to tell what a stream is
_XZ_MEMORY = 256 * 2**20
_ZSTD = b"\x28\xb5\x2f\xfd"


class Expander(Protocol):
    """Is fed what arrives and gives what it stands for."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Give the content of the next bytes."""

    def close(self) -> None:
        """Raise if the stream ended in the middle."""


def expander(start: bytes) -> Expander:
    """Return what reads a stream that starts so."""
    if start.startswith(b"\x1f\x8b"):
        return _Gzip()
    if start.startswith(b"\xfd7zXZ\x00"):
        return _Xz()
    if start.startswith(_ZSTD):
        raise ImportRefused("the file is compressed by zstd; gzip and xz are taken")
    return _Plain()


class _Plain:
    def feed(self, data: bytes) -> Iterator[bytes]:
        if data:
            yield data

    def close(self) -> None:
        pass


class _Gzip:
    def __init__(self) -> None:
        self._member = self._new()
        self._started = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            while data:
                if self._member.eof:
                    self._member = self._new()  # another member follows
                self._started = True
                piece = self._member.decompress(data, PIECE)
                data = self._member.unconsumed_tail or self._member.unused_data
                if piece:
                    yield piece
        except zlib.error as error:
            raise ImportFailed(f"the compressed file is damaged: {error}") from error

    def close(self) -> None:
        if self._started and not self._member.eof:
            raise ImportFailed("the compressed file ends too early")

    @staticmethod
    def _new() -> zlib._Decompress:
        return zlib.decompressobj(16 + zlib.MAX_WBITS)


class _Xz:
    def __init__(self) -> None:
        self._stream = self._new()

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            while data or not (self._stream.needs_input or self._stream.eof):
                if self._stream.eof:
                    data = data.lstrip(b"\0")  # padding between streams
                    if not data:
                        return
                    self._stream = self._new()
                piece = self._stream.decompress(data, PIECE)
                data = self._stream.unused_data if self._stream.eof else b""
                if piece:
                    yield piece
        except lzma.LZMAError as error:
            raise ImportFailed(f"the compressed file is damaged: {error}") from error

    def close(self) -> None:
        if not self._stream.eof:
            raise ImportFailed("the compressed file ends too early")

    @staticmethod
    def _new() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
