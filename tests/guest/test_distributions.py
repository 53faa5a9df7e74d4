"""Real distributions as guests: status reports what their kernels have, seen on their consoles.

Images are built by `make distributions`. The short test needs `12-cloud` alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from .debian_guest import DebianGuest, Inside, a_debian, booted, missing
from .guest_host import GuestHost, running_host, until

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
]

MIB = 1 << 20


@pytest.fixture(scope="module")
def host() -> Iterator[GuestHost]:
    with running_host() as host:
        yield host


@pytest.fixture(scope="module")
def debian(host: GuestHost) -> Iterator[DebianGuest]:
    """Debian 12 as shipped: its kernel leaves hot-plugged memory and CPUs offline."""
    if missing("12-cloud"):
        pytest.skip("the image is not built: make distributions")
    with booted(host, a_debian("debian")) as guest:
        yield guest


def test_given_memory_that_the_kernel_leaves_offline_then_what_is_reported_is_online(
    debian: DebianGuest,
) -> None:
    assert debian.console.run("cat /sys/devices/system/memory/auto_online_blocks") == "offline"
    debian.becomes(2, "1536Mi")
    status = debian.status
    assert status["currentCPUTopology"]["confirmed"]
    assert status["memory"]["confirmed"]
    debian.becomes(1, "1Gi")


def test_given_the_agent_is_stopped_then_a_size_is_plugged_and_not_confirmed(
    debian: DebianGuest,
) -> None:
    debian.stop_agent()
    try:
        debian.ask(2, "1536Mi")
        debian.wait()
        status, inside = debian.status, debian.inside()
        assert inside.cpus == 1  # nobody has brought the other one online
        assert status["currentCPUTopology"]["sockets"] == 2
        assert status["currentCPUTopology"]["confirmed"] is False
        assert status["memory"]["confirmed"] is False
        assert status["memory"]["guestCurrent"] == status["memory"]["guestPlugged"] == "1536Mi"
        assert debian.reason("SizeConfirmed") == "NoGuestAgent"
    finally:
        debian.console.run("systemctl start qemu-guest-agent")
    debian.agent_is(True)
    until("it is confirmed", lambda: debian.inside() == debian.reported == Inside(2, 1536 * MIB))
    assert debian.reason("SizeConfirmed") == ""
