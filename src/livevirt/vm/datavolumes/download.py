"""Fetches a disk image by HTTP into a file, decompressing gzip and xz on the way."""

from __future__ import annotations

import base64
import hashlib
import lzma
import os
import ssl
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

import aiohttp
from yarl import URL

from livevirt.files.durable import finished
from livevirt.vm.datavolumes.filling import ImportFailed, ImportRefused
from livevirt.vm.datavolumes.qemu_img import Progress

PIECE = 2**20  # at most so many bytes at once: a small file may expand to a great deal
MAGIC = 6  # bytes needed to detect the format of a stream
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


_CHUNK = 2**18
_BLOCK = 2**16  # zeros of this size become a hole in the file
_ZEROS = bytes(_BLOCK)
_PATIENCE = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
_DIGESTS = ("md5", "sha1", "sha256", "sha512")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a file is and how to ask for it."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    authority: str = ""  # certificates to trust, PEM
    checksum: str = ""  # of what is sent: `sha256:…`

    @property
    def shown(self) -> str:
        """The address without what may be secret in it."""
        url = URL(self.url)
        return str(url.with_user(None).with_query(None).with_fragment(None))


async def download(source: Source, target: Path, limit: int, progress: Progress) -> None:
    """Fetch the file, expanded if it is compressed; refuses one of more than `limit` bytes."""
    digest, wanted = _digest(source.checksum)
    try:
        async with _session(source) as session, session.get(source.url) as response:
            if response.status != 200:
                raise ImportFailed(
                    f"{source.shown} answered {response.status} {response.reason or ''}".rstrip()
                )
            await _receive(response, _Sink(target, limit), digest, progress)
    except (aiohttp.ClientError, ssl.SSLError, TimeoutError) as error:
        # An error may carry the address as it was given, with what is secret in it.
        problem = str(error).replace(source.url, source.shown)
        raise ImportFailed(f"{source.shown}: {problem or type(error).__name__}") from error
    if digest is not None and digest.hexdigest() != wanted:
        raise ImportRefused(
            f"the checksum of {source.shown} is {digest.name}:{digest.hexdigest()},"
            f" expected {digest.name}:{wanted}"
        )


async def _receive(
    response: aiohttp.ClientResponse, sink: _Sink, digest: hashlib._Hash | None, progress: Progress
) -> None:
    total, received = response.content_length, 0
    buffer, opened = b"", None
    with sink:
        async for chunk in response.content.iter_chunked(_CHUNK):
            received += len(chunk)
            if digest is not None:
                digest.update(chunk)
            buffer += chunk
            if opened is None and len(buffer) >= MAGIC:
                opened = expander(buffer)
            if opened is not None:
                await finished(sink.take, opened, buffer)
                buffer = b""
            if total:
                progress(100.0 * received / total)
        opened = opened or expander(buffer)
        await finished(sink.take, opened, buffer)
        if total is not None and received < total:
            raise ImportFailed(f"the file ended after {received} of {total} bytes")
        opened.close()
        if not sink.length:
            raise ImportFailed("the file is empty")


class _Sink:
    """Writes what comes, leaving holes for zeros."""

    def __init__(self, target: Path, limit: int) -> None:
        self.length = 0
        self._target, self._limit = target, limit

    def __enter__(self) -> _Sink:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self._file = os.fdopen(os.open(self._target, flags, 0o600), "wb", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._file.truncate(self.length)
        finally:
            self._file.close()

    def take(self, opened: Expander, data: bytes) -> None:
        """Write what the bytes stand for."""
        for piece in opened.feed(data):
            self._write(memoryview(piece))

    def _write(self, piece: memoryview) -> None:
        if self.length + len(piece) > self._limit:
            raise ImportRefused(
                f"the image is larger than the claim has room for ({self._limit} bytes):"
                " a larger claim is needed"
            )
        for start in range(0, len(piece), _BLOCK):
            block = piece[start : start + _BLOCK]
            if block != _ZEROS[: len(block)]:
                self._file.seek(self.length)
                written = 0
                while written < len(block):
                    written += self._file.write(block[written:]) or 0
            self.length += len(block)


def _session(source: Source) -> aiohttp.ClientSession:
    headers = {"Accept-Encoding": "identity", **source.headers}
    if source.user:
        pair = base64.b64encode(f"{source.user}:{source.password}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    context = ssl.create_default_context(cadata=source.authority) if source.authority else True
    return aiohttp.ClientSession(
        headers=headers,
        connector=aiohttp.TCPConnector(ssl=context),
        timeout=_PATIENCE,
        auto_decompress=False,
        trust_env=not _loopback(URL(source.url).host or ""),
    )


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _digest(checksum: str) -> tuple[hashlib._Hash | None, str]:
    if not checksum:
        return None, ""
    algorithm, _, value = checksum.partition(":")
    if algorithm not in _DIGESTS or not value:
        raise ImportRefused(f"checksum {checksum!r} is not one of {', '.join(_DIGESTS)}:…")
    return hashlib.new(algorithm), value.lower()
