"""Fetches a disk image by HTTP into a file."""

from __future__ import annotations

import base64
import hashlib
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import aiohttp
from yarl import URL

from livevirt.files.durable import finished
from livevirt.vm.datavolumes.decompress import MAGIC, Expander, expander
from livevirt.vm.datavolumes.filling import ImportFailed, ImportRefused
from livevirt.vm.datavolumes.qemu_img import Progress

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
        told = str(error).replace(source.url, source.shown)
        raise ImportFailed(f"{source.shown}: {told or type(error).__name__}") from error
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
