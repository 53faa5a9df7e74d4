"""KubeVirt's own virtctl, unmodified, against a real server with a real guest.

UPSTREAM_VIRTCTL names the program; nothing here runs without it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import livevirt

from . import forwarded
from .guest_host import IMAGE, SECONDS, GuestHost, until
from .hot_volumes import a_claim
from .screen import png, view
from .terminal import Terminal, log_in_and_out

UPSTREAM = os.environ.get("UPSTREAM_VIRTCTL", "")

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not UPSTREAM, reason="UPSTREAM_VIRTCTL does not name KubeVirt's virtctl"),
]

NAME = "theirs"


class Upstream:
    """The program, as somebody who administers the server uses it."""

    def __init__(self, host: GuestHost) -> None:
        self.host = host

    def attempt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [UPSTREAM, *arguments], env=self.host.server.environment(), cwd=self.host.server.home,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip

    def __call__(self, *arguments: str) -> str:
        """Run it, which must succeed; return what it printed."""
        done = self.attempt(*arguments)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def virtctl(guest_host: GuestHost) -> Iterator[Upstream]:
    """The program, and a guest that was made with it and whose agent answers."""
    found = Upstream(guest_host)
    made = found(
        "create", "vm", f"--name={NAME}", "--memory=256Mi", "--termination-grace-period=20",
        f"--volume-containerdisk=src:{IMAGE}",
    )  # fmt: skip
    guest_host.apply(yaml.safe_load(made))
    guest_host.answers(NAME)
    yield found
    guest_host.discard(NAME)


def test_it_tells_the_versions_of_both_sides(virtctl: Upstream) -> None:
    _, server = virtctl("version").splitlines()
    assert f'GitVersion:"v{livevirt.__version__}"' in server


def test_the_vm_it_made_runs_as_it_was_written(virtctl: Upstream) -> None:
    host = virtctl.host
    spec = host.get("vm", NAME)["spec"]["template"]["spec"]
    assert spec["domain"]["memory"] == {"guest": "256Mi"}
    assert spec["terminationGracePeriodSeconds"] == 20
    assert int(host.shell(NAME, "awk '/MemTotal/ {print $2}' /proc/meminfo")) < 256 * 1024


@pytest.mark.parametrize("kind", ["vm", "vmi"])
def test_it_pauses_a_guest_and_lets_it_go_on(virtctl: Upstream, kind: str) -> None:
    host = virtctl.host
    assert virtctl("pause", kind, NAME) == f"VMI {NAME} was scheduled to pause\n"
    until("Paused", lambda: host.word(NAME) == "Paused")
    refused = virtctl.attempt("soft-reboot", NAME)
    assert refused.returncode == 1
    assert f'"{NAME}": VMI is paused' in refused.stderr
    assert virtctl("unpause", kind, NAME) == f"VMI {NAME} was scheduled to unpause\n"
    until("Running", lambda: host.word(NAME) == "Running")


def test_it_shows_what_the_agent_tells(virtctl: Upstream) -> None:
    info = json.loads(virtctl("guestosinfo", NAME))
    assert info["os"]["kernelRelease"] == virtctl.host.shell(NAME, "uname -r")
    assert "items" in json.loads(virtctl("fslist", NAME))
    assert "items" in json.loads(virtctl("userlist", NAME))


def test_a_person_logs_in_on_its_console(virtctl: Upstream) -> None:
    terminal = Terminal(virtctl.host.server, UPSTREAM, "console", NAME)
    try:
        log_in_and_out(terminal, NAME)
    finally:
        status = terminal.close()
    assert status == 0


def test_it_shows_the_screen(virtctl: Upstream, tmp_path: Path) -> None:
    with forwarded.screen(virtctl.host, NAME, UPSTREAM) as port:
        seen = view(port)
    file = tmp_path / "screen.png"
    virtctl("vnc", "screenshot", NAME, f"--file={file}", "--move-cursor")
    taken = png(file.read_bytes())
    assert (taken.width, taken.height) == (seen.width, seen.height)
    assert not taken.blank


@pytest.mark.parametrize("target", [f"vm/{NAME}", f"vmi/{NAME}/default"])
def test_it_forwards_a_port(virtctl: Upstream, target: str) -> None:
    host = virtctl.host
    host.shell(NAME, "setsid nc -lllll -p 7007 -e cat < /dev/null > /dev/null 2>&1 &")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with forwarded.running(host, UPSTREAM, "port-forward", target, f"{port}:7007"):
        until("the local port", lambda: accepts(port))
        everything = bytes(range(256)) * 400
        assert forwarded.echo(port, everything) == everything
    done = subprocess.run(
        [UPSTREAM, "port-forward", "--stdio=true", target, "7007"], input=b"hi",
        env=host.server.environment(), capture_output=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def test_it_adds_a_volume_to_the_vm_and_removes_it(virtctl: Upstream) -> None:
    host = virtctl.host
    host.apply(a_claim("more"))
    spec = host.get("vm", NAME)["spec"]
    said = f"request to VM {NAME} for volume more\n"
    add = ("addvolume", NAME, "--volume-name=more", "--persist")  # newer ones need not be told
    assert f"Successfully submitted add volume {said}" in virtctl(*add, "--dry-run")
    assert host.get("vm", NAME)["spec"] == spec
    assert virtctl(*add) == f"Successfully submitted add volume {said}"
    seen = "grep -ls more /sys/block/sd*/device/vpd_pg80 | wc -l"
    until("the disk", lambda: host.shell(NAME, seen) == "1")
    refused = virtctl.attempt(*add)
    assert "Unable to add volume [more] because volume with that name already exists" in (
        refused.stderr
    )
    remove = ("removevolume", NAME, "--volume-name=more", "--persist")
    assert virtctl(*remove) == f"Successfully submitted remove volume {said}"
    until("no disk", lambda: host.shell(NAME, seen) == "0")
    refused = virtctl.attempt(*remove)
    assert "Unable to remove volume [more] because it does not exist" in refused.stderr
    after = host.get("vm", NAME)
    assert after["spec"] == spec
    assert "volumeRequests" not in after["status"]


def test_it_reboots_the_guest_and_leaves_the_instance(virtctl: Upstream) -> None:
    host = virtctl.host
    boot, uid = host.boot_id(NAME), host.uid(NAME)
    assert virtctl("soft-reboot", NAME) == f"VMI {NAME} was scheduled to soft-reboot\n"
    until("another boot", lambda: host.booted_anew(NAME, boot))
    assert host.uid(NAME) == uid


def test_it_restarts_stops_and_starts_the_vm(virtctl: Upstream) -> None:
    host = virtctl.host
    before = host.uid(NAME)
    assert virtctl("restart", NAME) == f"VM {NAME} was scheduled to restart\n"
    until("another instance", lambda: host.uid(NAME) not in ("", before))
    assert virtctl("stop", NAME, "--force", "--grace-period=0") == (
        f"VM {NAME} was scheduled to stop\n"
    )
    until("the end of it", lambda: host.word(NAME) == "Stopped" and not host.get("vmi", NAME))
    refused = virtctl.attempt("restart", NAME)
    assert "RunStategy Halted does not support manual restart requests" in refused.stderr
    assert virtctl("start", NAME) == f"VM {NAME} was scheduled to start\n"
    host.answers(NAME)
    refused = virtctl.attempt("start", NAME)
    assert "VM is already running" in refused.stderr
