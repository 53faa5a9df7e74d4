"""Sockets are reached by paths of any length, and never through a symbolic link."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livevirt.files import unix_socket


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Path]:
    """A socket that answers with one line, in a directory with too long a name to bind there."""
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    short = tmp_path / "s"

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello\n")
        writer.close()

    async with await asyncio.start_unix_server(answer, str(short)):
        path = folder / "qmp.sock"
        short.rename(path)
        yield path


async def test_a_path_longer_than_a_socket_address_is_reached(server: Path) -> None:
    with socket.socket(socket.AF_UNIX) as line, pytest.raises(OSError, match="too long"):
        line.connect(str(server))
    reader, writer = await unix_socket.open_streams(server)
    assert await reader.readline() == b"hello\n"
    writer.close()
    await writer.wait_closed()


async def test_a_link_to_a_socket_is_not_followed(server: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(server)
    with pytest.raises(OSError, match="Socket operation on non-socket"):
        await unix_socket.connect(link)


async def test_a_file_is_no_socket(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await unix_socket.connect(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="non-socket"):
        await unix_socket.connect(tmp_path / "file")
