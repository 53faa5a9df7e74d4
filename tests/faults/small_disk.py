"""A server whose data directory is on a small file system of its own, and clients of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ..server_process import ServerProcess, short_directory

SECONDS = 60.0
MIB = 1 << 20


@dataclass
class SmallDisk:
    """A server and the means to fill its disk."""

    server: ServerProcess

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and the decoded body of one request, by the administrator."""
        url = urlsplit(self.server.url)
        connection = http.client.HTTPSConnection(
            url.hostname or "", url.port, context=self.server.admin(), timeout=SECONDS
        )
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, body and json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(text) if is_json else text.decode()

    def create(self, name: str, size: int = 1000) -> tuple[int, Any]:
        """Create a config map of about so many bytes."""
        body = {"metadata": {"name": name}, "data": {"text": "x" * size}}
        return self.request("POST", "/api/v1/namespaces/default/configmaps", body)

    def names(self) -> set[str]:
        """Return the config maps there are."""
        status, found = self.request("GET", "/api/v1/namespaces/default/configmaps")
        assert status == 200, found
        return {each["metadata"]["name"] for each in found["items"]}

    def ready(self) -> tuple[int, str]:
        """Return what `/readyz` says."""
        status, text = self.request("GET", "/readyz?verbose")
        return status, text

    @property
    def ballast(self) -> Path:
        return self.server.data / "ballast"

    def fill(self) -> None:
        """Take every byte that is left."""
        with contextlib.suppress(OSError), self.ballast.open("ab", buffering=0) as file:
            while file.write(bytes(MIB)):
                pass
        with contextlib.suppress(OSError), self.ballast.open("ab", buffering=0) as file:
            while file.write(bytes(512)):
                pass


@contextlib.contextmanager
def small_disk(mebibytes: int, *flags: str) -> Iterator[SmallDisk]:
    """Run a server on a tmpfs of that size."""
    with short_directory() as home:
        home.chmod(0o711)
        server = ServerProcess(home, flags=flags)
        server.data.mkdir()
        server.data.chmod(0o711)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=711", "tmpfs", server.data],
            capture_output=True,
        )
        if mounted.returncode:
            pytest.skip(f"mounting a tmpfs needs root: {mounted.stderr.decode().strip()}")
        try:
            server.start()
            yield SmallDisk(server)
        finally:
            server.kill()
            subprocess.run(["umount", "-l", server.data], check=True)


def until(what: str, holds: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.1)
