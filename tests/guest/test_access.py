"""Reaching a guest from outside: its screen, its ports, its USB slots."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..server_process import BIN
from .guest_host import GuestHost, a_bare_vm, until
from .screen import png, view

pytestmark = [pytest.mark.guest, pytest.mark.slow]

NAME = "screen"


@contextlib.contextmanager
def proxy(host: GuestHost, name: str, program: str = str(BIN / "virtctl")) -> Iterator[int]:
    """Run `virtctl vnc --proxy-only` while the block lasts; yield its port."""
    process = subprocess.Popen(
        [program, "vnc", name, "--proxy-only"], env=host.server.environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        yield json.loads(line)["port"]
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def screen(guest_host: GuestHost) -> Iterator[GuestHost]:
    """A guest whose firmware finds nothing to boot, and says so on its screen."""
    vm = a_bare_vm(NAME)
    del vm["spec"]["template"]["spec"]["domain"]["devices"]["autoattachGraphicsDevice"]
    guest_host.apply(vm)
    until("it to run", lambda: guest_host.phase(NAME) == "Running")
    yield guest_host
    guest_host.discard(NAME)


def test_a_vnc_client_reads_the_screen(screen: GuestHost) -> None:
    def written() -> bool:
        with proxy(screen, NAME) as port:
            return not view(port).blank

    until("the firmware to write something", written)


def test_a_screenshot_is_a_picture_of_what_a_viewer_sees_and_leaves_the_viewer_alone(
    screen: GuestHost, tmp_path: Path
) -> None:
    with proxy(screen, NAME) as port:
        file = tmp_path / "screen.png"
        screen.run("virtctl", "vnc", "screenshot", NAME, "-f", str(file), "--move-cursor")
        taken, seen = png(file.read_bytes()), view(port)
    assert not taken.blank
    assert (taken.width, taken.height) == (seen.width, seen.height)


def test_a_viewer_is_disconnected_when_the_guest_ends(screen: GuestHost) -> None:
    with proxy(screen, NAME) as port, socket.create_connection(("127.0.0.1", port), 60) as viewer:
        assert viewer.recv(12) == b"RFB 003.008\n"
        before = screen.uid(NAME)
        screen.server.kubectl("delete", "vmi", NAME, "--wait=false")
        assert viewer.recv(1) == b""
        until("another instance", lambda: screen.uid(NAME) not in ("", before))
    until("it to run", lambda: screen.phase(NAME) == "Running")
