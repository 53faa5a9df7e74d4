"""Connections to unix sockets in directories that others can write to, such as a pod's.

A path may be longer than a socket address allows, and the owner of the directory could replace the
socket by a symbolic link to another one. So the socket itself is opened first, and the connection
is made through its descriptor.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat


async def connect(path: str | os.PathLike[str]) -> socket.socket:
    """Return a connection to the socket at that path; raises OSError if there is none."""
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(handle).st_mode):
            raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK), os.fspath(path))
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(line, f"/proc/self/fd/{handle}")
        except BaseException:
            line.close()
            raise
        return line
    finally:
        os.close(handle)


async def open_streams(
    path: str | os.PathLike[str], limit: int = 2**16
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of a connection to the socket at that path; raises OSError."""
    line = await connect(path)
    try:
        return await asyncio.open_unix_connection(sock=line, limit=limit)
    except BaseException:
        line.close()
        raise
