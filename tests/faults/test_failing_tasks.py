"""Every background task fails once: each is restarted by itself, and all work is done."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..guest.guest_host import GuestHost, a_bare_vm, image_missing, until
from ..server_process import ServerProcess, short_directory

PROGRAM = Path(__file__).with_name("failing_tasks.py")
_SAMPLE = re.compile(r'livevirt_background_(\w+)\{task="([^"]+)"\} (\d+)')


@pytest.fixture
def host() -> Iterator[GuestHost]:
    if image_missing():
        pytest.skip("the test guest is not imported: make setup does it")
    with short_directory() as home:
        home.chmod(0o711)
        found = GuestHost(ServerProcess(home))
        try:
            found.server.start(sys.executable, str(PROGRAM))
            yield found
        finally:
            found.end()


def counted(host: GuestHost, what: str) -> dict[str, int]:
    """Return a metric of the background tasks, by task."""
    found = _SAMPLE.findall(host.server.kubectl("get", "--raw", "/metrics"))
    return {task: int(value) for name, task, value in found if name == what}


@pytest.mark.guest
@pytest.mark.slow
def test_given_every_task_fails_once_then_all_are_restarted_and_a_guest_runs(
    host: GuestHost,
) -> None:
    seen = host.server.run_kubectl("get", "--raw", "/readyz?verbose")
    host.apply(a_bare_vm("web"))
    until("a guest", lambda: host.phase("web") == "Running", 90)
    until("each to have failed", lambda: all(counted(host, "restarts_total").values()), 60)
    restarts = counted(host, "restarts_total")
    assert set(restarts.values()) == {1}, restarts
    expected = {"scheduler", "collector", "feed", "node01", "node01-registration", "probe-host",
                "informer-pods", "settle-nodes", "disk-reserve"}  # fmt: skip
    assert expected <= restarts.keys()
    assert len(restarts) > 25

    host.discard("web")  # garbage collection and all controllers still see what changes
    until("no task to fail", lambda: not any(counted(host, "failing").values()))
    assert host.server.run_kubectl("get", "--raw", "/readyz").stdout == "ok"
    assert seen.returncode != 0 or "[+]ping ok" in seen.stdout
