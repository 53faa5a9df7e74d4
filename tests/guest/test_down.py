"""`livevirt down`: guests run on, or end in order, as asked; the next server knows which."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from ..server_process import BIN, ServerProcess
from .guest_host import running_host
from .test_commands import agent_answers, run, until

pytestmark = [pytest.mark.guest, pytest.mark.slow]


@pytest.fixture
def host() -> Iterator[ServerProcess]:
    with running_host() as host:
        yield host.server


def down(server: ServerProcess, *options: str) -> str:
    command = [BIN / "livevirt", "down", "--data-dir", server.data, *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def emulators(server: ServerProcess) -> list[str]:
    """Return the processes that run guests of this server."""
    found = subprocess.run(
        ["pgrep", "-f", f"qemu-system.*{server.data}/run"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return found.stdout.split()


def the_vmi(server: ServerProcess) -> dict[str, object]:
    done = server.run_kubectl("get", "vmi", "web", "-o", "json")
    return json.loads(done.stdout) if done.returncode == 0 else {}


def test_guests_outlive_the_server_unless_told_otherwise(host: ServerProcess) -> None:
    made = run(host, "virtctl", "create", "vm", "--name=web", "--memory=192Mi",
               "--volume-containerdisk=src:livevirt/guest:latest")  # fmt: skip
    host.kubectl("apply", "-f", "-", input=made)
    agent_answers(host)
    first = emulators(host)
    assert len(first) == 1
    uid = the_vmi(host)["metadata"]["uid"]

    assert "its guests run on" in down(host)
    host.stop()  # already gone: this only buries it
    assert emulators(host) == first

    assert "stopped default/web" in down(host, "--guests", "stop")
    assert emulators(host) == []

    host.start()  # the VM shall always run: it gets a new guest, the old one ended well
    until("a new instance", lambda: (the_vmi(host).get("metadata") or {}).get("uid", uid) != uid)
    until("its guest", lambda: len(emulators(host)) == 1)
    assert emulators(host) != first
    reasons = host.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}")
    assert "BackOff" not in reasons
