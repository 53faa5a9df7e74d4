"""Commands that serve a local port which leads to a guest, run while a block lasts."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
from collections.abc import Iterator

from ..server_process import BIN
from .guest_host import GuestHost

VIRTCTL = str(BIN / "virtctl")
SECONDS = 60.0


@contextlib.contextmanager
def running(host: GuestHost, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command of an administrator; end it with the block."""
    process = subprocess.Popen(
        command, env=host.server.environment(), cwd=host.server.home, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def screen(host: GuestHost, name: str, virtctl: str = VIRTCTL) -> Iterator[int]:
    """Serve the screen of a guest to a viewer; yield the port."""
    with running(host, virtctl, "vnc", name, "--proxy-only") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield json.loads(line)["port"]


@contextlib.contextmanager
def port(host: GuestHost, target: str, remote: str) -> Iterator[int]:
    """Forward a free local port to one of a guest, such as `udp/53`; yield the local one."""
    protocol, slash, number = remote.rpartition("/")
    wanted = f"{protocol}{slash}0:{number}"
    with running(host, VIRTCTL, "port-forward", target, wanted) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r":(\d+) to ", line)
        assert found, line + process.stderr.read()
        yield int(found[1])


def echo(port: int, data: bytes) -> bytes:
    """Send data to a port and return as much as was sent."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as line:
        line.sendall(data)
        found = b""
        while len(found) < len(data) and (piece := line.recv(65536)):
            found += piece
    return found
