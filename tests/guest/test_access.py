"""Reaching a guest from outside: its screen and its ports, also after it moved or livevirt died."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from . import forwarded
from .forwarded import echo
from .guest_host import IMAGE, GuestHost, a_bare_vm, a_vm, image_missing, until
from .moving_guest import two_nodes
from .screen import png, view

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported: make setup"),
]

NAME = "web"  # as in docs/access.md
USB = "usb"
ECHO = 7
ROOT = Path(__file__).resolve().parents[2]
CONNECTIONS = 50


@pytest.fixture(scope="module")
def host() -> Iterator[GuestHost]:
    """A server of two nodes with a guest that sends back what a port is sent."""
    with two_nodes() as host:
        vm = a_vm(NAME)
        del vm["spec"]["template"]["spec"]["domain"]["devices"]["autoattachGraphicsDevice"]
        host.apply(vm)
        host.answers(NAME)
        address = "ip -4 -o addr show scope global"
        until("an address", lambda: host.shell(NAME, address))
        serve = f"nc -{'l' * CONNECTIONS} -p {ECHO} -e cat"  # as many may wait as there are l's
        host.shell(NAME, f"setsid {serve} < /dev/null > /dev/null 2>&1 &")
        yield host


# ---------------------------------------------------------------- the screen


def test_a_vnc_client_reads_the_screen(host: GuestHost) -> None:
    def written() -> bool:
        with forwarded.screen(host, NAME) as port:
            return not view(port).blank

    until("something on the screen", written)


def test_a_screenshot_shows_what_a_viewer_sees_and_does_not_disturb_it(
    host: GuestHost, tmp_path: Path
) -> None:
    with forwarded.screen(host, NAME) as port:
        file = tmp_path / "screen.png"
        host.run("virtctl", "vnc", "screenshot", NAME, "-f", str(file), "--move-cursor")
        taken, seen = png(file.read_bytes()), view(port)
    assert not taken.blank
    assert (taken.width, taken.height) == (seen.width, seen.height)


# ---------------------------------------------------------------- ports


@pytest.mark.parametrize("target", [f"vm/{NAME}", f"vmi/{NAME}/default", f"vmi/{NAME}.default"])
def test_a_port_of_a_guest_is_reached(host: GuestHost, target: str) -> None:
    with forwarded.port(host, target, str(ECHO)) as port:
        everything = bytes(range(256)) * 4000
        assert echo(port, everything) == everything
        assert echo(port, b"again") == b"again"


@pytest.mark.long
def test_fifty_connections_at_once_are_kept_apart(host: GuestHost) -> None:
    open_at_once = threading.Barrier(CONNECTIONS)

    def talk(number: int) -> bool:
        mine = f"connection {number}\n".encode() * 2000
        with socket.create_connection(("127.0.0.1", port), forwarded.SECONDS) as line:
            line.sendall(mine[:1000])
            found = line.recv(1)
            open_at_once.wait(forwarded.SECONDS)
            line.sendall(mine[1000:])
            while len(found) < len(mine) and (piece := line.recv(65536)):
                found += piece
        return found == mine

    with (
        forwarded.port(host, f"vm/{NAME}", str(ECHO)) as port,
        ThreadPoolExecutor(CONNECTIONS) as threads,
    ):
        assert all(threads.map(talk, range(CONNECTIONS)))


def test_standard_input_and_output_are_forwarded(host: GuestHost) -> None:
    done = host.attempt(
        "virtctl", "port-forward", "--stdio=true", f"vm/{NAME}", str(ECHO), input="hi"
    )
    assert (done.returncode, done.stdout) == (0, "hi")


def test_a_port_that_nothing_listens_on_is_refused(host: GuestHost) -> None:
    done = host.attempt("virtctl", "port-forward", "--stdio", f"vm/{NAME}", "8")
    assert (done.returncode, done.stdout) == (1, "")
    assert "refused" in done.stderr


def test_nothing_listens_on_the_host_once_connections_are_open(host: GuestHost) -> None:
    with (
        forwarded.port(host, f"vm/{NAME}", str(ECHO)) as port,
        socket.create_connection(("127.0.0.1", port), forwarded.SECONDS) as line,
    ):
        line.sendall(b"x")
        assert line.recv(1) == b"x"
        assert listeners(host.qemu(NAME)) == []


def listeners(pid: int) -> list[str]:
    """Return the TCP sockets that a process listens on."""
    shown = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    return [line for line in shown.splitlines() if f"pid={pid}," in line]


def test_the_commands_of_the_page_work_as_they_are_written(host: GuestHost) -> None:
    page = (ROOT / "docs" / "access.md").read_text()
    typed = re.findall(r"^\$ (.+)$", page, re.MULTILINE)
    assert typed
    for command in typed:
        done = subprocess.run(
            command, shell=True, env=host.server.environment(), cwd=host.server.home,
            capture_output=True, text=True, timeout=forwarded.SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stderr)
    assert done.stdout == "hello\n"
    assert not png((host.server.home / "screen.png").read_bytes()).blank


# ---------------------------------------------------------------- USB


@pytest.fixture(scope="module")
def slots(host: GuestHost) -> GuestHost:
    """A guest with USB slots, which QEMU serves also where no system runs."""
    vm = a_bare_vm(USB)
    vm["spec"]["template"]["spec"]["domain"]["devices"]["clientPassthrough"] = {}
    host.apply(vm)
    until("it to run", lambda: host.phase(USB) == "Running")
    return host


def test_four_usb_devices_are_redirected_and_a_fifth_is_refused(slots: GuestHost) -> None:
    host = slots
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            greeting = stack.enter_context(usb_slot(host)).recv(80, socket.MSG_WAITALL)
            assert b"qemu usb-redir guest" in greeting  # the hello of the usbredir protocol
        refused = host.attempt("virtctl", "usbredir", "--no-launch", USB)
        assert refused.returncode == 1
        assert "in use" in refused.stderr
    until("a free slot", lambda: usb_is_free(host))


@contextlib.contextmanager
def usb_slot(host: GuestHost) -> Iterator[socket.socket]:
    """Connect to a USB slot as a client of the usbredir protocol does."""
    with forwarded.running(host, forwarded.VIRTCTL, "usbredir", "--no-launch", USB) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        port = int(line.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), forwarded.SECONDS) as client:
            yield client


def usb_is_free(host: GuestHost) -> bool:
    with contextlib.suppress(AssertionError), usb_slot(host) as client:
        return bool(client.recv(1))
    return False


# ---------------------------------------------------------------- what ends and what goes on


def streams_end_with(host: GuestHost, command: str, port: int, vnc: int) -> None:
    """Open a connection and a viewer, run a command of virtctl, and see both closed."""
    line = socket.create_connection(("127.0.0.1", port), forwarded.SECONDS)
    viewer = socket.create_connection(("127.0.0.1", vnc), forwarded.SECONDS)
    with line, viewer:
        line.sendall(b"x")
        assert line.recv(1) == b"x"
        assert viewer.recv(12) == b"RFB 003.008\n"
        host.run("virtctl", command, NAME, "--wait")
        assert viewer.recv(1) == b""
        assert line.recv(1) == b""


def test_streams_end_with_a_migration_and_the_guest_is_reached_where_it_went(
    host: GuestHost,
) -> None:
    with forwarded.port(host, f"vm/{NAME}", str(ECHO)) as port, forwarded.screen(host, NAME) as vnc:
        streams_end_with(host, "migrate", port, vnc)
        assert echo(port, b"moved") == b"moved"
    with forwarded.screen(host, NAME) as vnc:
        assert view(vnc).width >= 640


def test_streams_work_after_the_server_was_killed(host: GuestHost, slots: GuestHost) -> None:
    host.server.kill()
    host.server.start()
    host.found(NAME)
    with forwarded.port(host, f"vm/{NAME}", str(ECHO)) as port:
        assert echo(port, b"back") == b"back"
    with forwarded.screen(host, NAME) as vnc:
        assert view(vnc).width >= 640
    assert usb_is_free(host)


def test_streams_end_with_the_guest(host: GuestHost) -> None:
    # The last test of this guest.
    with forwarded.port(host, f"vm/{NAME}", str(ECHO)) as port, forwarded.screen(host, NAME) as vnc:
        streams_end_with(host, "stop", port, vnc)
    done = host.attempt("virtctl", "port-forward", "--stdio", f"vm/{NAME}", str(ECHO))
    assert done.returncode == 1
