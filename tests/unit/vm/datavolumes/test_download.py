"""What is fetched is checked, bounded, and named without its secrets."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from livevirt.vm.datavolumes.download import Source, download
from livevirt.vm.datavolumes.filling import ImportFailed, ImportRefused

CONTENT = b"start" + bytes(2**20) + b"end"
BODIES = {"/empty": b"", "/half.gz": gzip.compress(CONTENT)[:-20]}


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/private" and "Authorization" not in request.headers:
            return web.Response(status=401)
        if request.path == "/header" and request.headers.get("X-Token") != "t":
            return web.Response(status=403)
        return web.Response(body=BODIES.get(request.path, CONTENT))

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def fetch(source: Source, target: Path, limit: int = 2**22) -> bytes:
    told: list[float] = []
    await download(source, target, limit, told.append)
    assert told[-1] == 100.0
    return read(target)


def read(path: Path) -> bytes:
    return path.read_bytes()


async def test_a_file_is_fetched_with_holes_for_its_zeros(url: str, tmp_path: Path) -> None:
    target = tmp_path / "disk"
    assert await fetch(Source(f"{url}/disk"), target) == CONTENT
    assert target.stat().st_blocks * 512 < len(CONTENT)


async def test_a_checksum_is_kept(url: str, tmp_path: Path) -> None:
    right = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    assert await fetch(Source(f"{url}/disk", checksum=right), tmp_path / "a") == CONTENT
    wrong = f"sha256:{'0' * 64}"
    with pytest.raises(ImportRefused, match=f"expected {wrong}"):
        await fetch(Source(f"{url}/disk", checksum=wrong), tmp_path / "b")
    with pytest.raises(ImportRefused, match="is not one of"):
        await fetch(Source(f"{url}/disk", checksum="crc:1"), tmp_path / "c")


async def test_more_than_there_is_room_for_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="larger than the claim"):
        await fetch(Source(f"{url}/disk"), tmp_path / "disk", limit=1000)


async def test_credentials_and_headers_are_sent(url: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="401"):
        await fetch(Source(f"{url}/private"), tmp_path / "a")
    named = Source(f"{url}/private", user="u", password="p")
    assert await fetch(named, tmp_path / "b") == CONTENT
    told = Source(f"{url}/header", {"X-Token": "t"})
    assert await fetch(told, tmp_path / "c") == CONTENT


async def test_a_packed_file_that_is_not_whole_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="ends too early"):
        await fetch(Source(f"{url}/half.gz"), tmp_path / "disk")


async def test_an_empty_file_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="empty"):
        await fetch(Source(f"{url}/empty"), tmp_path / "disk")


async def test_a_server_that_does_not_answer_is_named_without_secrets(tmp_path: Path) -> None:
    source = Source("http://user:word@127.0.0.1:1/disk?token=hidden")
    with pytest.raises(ImportFailed) as failed:
        await fetch(source, tmp_path / "disk")
    assert "127.0.0.1:1" in str(failed.value)
    assert "hidden" not in str(failed.value)
    assert "word" not in str(failed.value)
