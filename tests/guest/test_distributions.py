"""Real distributions as guests: status reports what their kernels have, seen on their consoles.

Images are built by `make distributions`. The short tests need `12-cloud` alone, the long ones
`13-cloud` too, and the whole matrix (`make test-soak`) all four.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest

from .debian_guest import AUTO_ONLINE, MIB, DebianGuest, Inside, a_debian, booted, missing
from .guest_host import GuestHost, running_host, until
from .live_guest import CPU, MEMORY

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
]

NOT_BUILT = "the image is not built: make distributions"


@pytest.fixture(scope="module")
def host() -> Iterator[GuestHost]:
    with running_host() as host:
        yield host


@pytest.fixture(scope="module")
def debian_12(host: GuestHost) -> Iterator[DebianGuest]:
    """Debian 12 as shipped: its kernel leaves hot-plugged memory and CPUs offline."""
    if missing("12-cloud"):
        pytest.skip(NOT_BUILT)
    with booted(host, a_debian("debian-12")) as guest:
        yield guest


@pytest.fixture
def debian(debian_12: DebianGuest) -> DebianGuest:
    """The same guest for each test: at the size of its boot, its agent and kernel as shipped."""
    guest = debian_12
    if guest.used:
        guest.console.run("pkill -CONT qemu-ga || true")
        guest.set_auto_online("offline")
        guest.ask(1, "1Gi")
        guest.settles(1, "1Gi")
    guest.used = True
    return guest


def test_given_memory_that_the_kernel_leaves_offline_then_what_is_reported_is_online(
    debian: DebianGuest,
) -> None:
    assert debian.console.run(f"cat {AUTO_ONLINE}") == "offline"
    debian.becomes(2, "1536Mi")
    status = debian.status
    assert status["currentCPUTopology"]["confirmed"]
    assert status["memory"]["confirmed"]
    debian.becomes(1, "1Gi")


def test_given_the_agent_is_stopped_then_a_size_is_plugged_and_not_confirmed(
    debian: DebianGuest,
) -> None:
    debian.stop_agent()
    debian.ask(2, "1536Mi")
    debian.wait()
    status = debian.status
    assert debian.inside().cpus == 1  # nobody has brought the other one online
    assert status["currentCPUTopology"]["sockets"] == 2
    assert status["currentCPUTopology"]["confirmed"] is False
    assert status["memory"]["confirmed"] is False
    assert status["memory"]["guestCurrent"] == status["memory"]["guestPlugged"] == "1536Mi"
    assert debian.reason("SizeConfirmed") == "NoGuestAgent"
    debian.start_agent()
    until("it is confirmed", lambda: debian.inside() == debian.reported == Inside(2, 1536 * MIB))
    assert debian.reason("SizeConfirmed") == ""


# ---------------------------------------------------------------- agents that cannot do all


@pytest.mark.long
def test_given_an_agent_that_hangs_then_it_counts_as_absent_until_it_answers(
    debian: DebianGuest,
) -> None:
    debian.console.run("pkill -STOP qemu-ga")
    debian.ask(2, "1536Mi")
    debian.wait()
    status = debian.status
    assert status["currentCPUTopology"]["confirmed"] is False
    assert status["memory"]["confirmed"] is False
    assert debian.reason("SizeConfirmed") == "NoGuestAgent"
    debian.console.run("pkill -CONT qemu-ga")
    debian.agent_is(True)
    until("it is confirmed", lambda: debian.inside() == debian.reported == Inside(2, 1536 * MIB))
    assert debian.status["memory"]["confirmed"]


@pytest.mark.long
def test_given_an_agent_without_the_commands_then_its_size_is_not_confirmed(
    debian: DebianGuest,
) -> None:
    debian.start_agent("guest-get-memory-blocks", "guest-get-vcpus")
    debian.ask(2, "1536Mi")
    debian.wait()
    status = debian.status
    assert status["currentCPUTopology"]["confirmed"] is False
    assert status["memory"]["confirmed"] is False
    assert debian.reason("SizeConfirmed") == "NotReportedByAgent"


@pytest.mark.long
def test_given_nothing_helps_then_the_guest_does_not_accept_and_the_fix_is_named(
    debian: DebianGuest,
) -> None:
    debian.start_agent("guest-file-open", "guest-set-memory-blocks", "guest-set-vcpus")
    debian.ask(2, "1536Mi")
    for type_ in (CPU, MEMORY):
        debian.waits(type_, "GuestNotAccepting")
    assert debian.reported == debian.inside() == Inside(1, 1024 * MIB)
    assert debian.status["memory"]["guestPlugged"] == "1536Mi"
    shown = debian.host.run("virtctl", "why", debian.name)
    assert "memhp_default_state=online_movable" in shown
    assert "udev" in shown
    debian.console.run("echo 1 > /sys/devices/system/cpu/cpu1/online")
    states = "$(grep -l offline /sys/devices/system/memory/memory*/state)"
    debian.console.run(f"for file in {states}; do echo online_movable > $file; done")
    debian.settles(2, "1536Mi")


@pytest.mark.long
def test_given_a_kernel_that_reports_one_possible_cpu_then_the_plan_says_so_before_the_edit(
    debian: DebianGuest,
) -> None:
    file = "/sys/devices/system/cpu/possible"
    debian.console.run(f"echo 0 > /run/possible && mount --bind /run/possible {file}")
    try:
        debian.start_agent()
        until("it is known", lambda: debian.status["currentCPUTopology"].get("possible") == 1)
        needs_a_restart(debian)
    finally:
        debian.console.run(f"umount {file}")


@pytest.mark.long
def test_given_an_agent_that_may_not_write_files_then_blocks_are_brought_online_as_they_come(
    debian: DebianGuest,
) -> None:
    # The last test of this guest: it may not give that memory back.
    debian.start_agent("guest-file-open")
    debian.becomes(1, "1536Mi")
    assert debian.console.run(f"cat {AUTO_ONLINE}") == "offline"
    assert debian.status["memory"]["shrinkable"] is False
    reasons = {reason for reason, _ in debian.host.warnings(debian.name)}
    assert "MemoryMayNotShrink" in reasons


# ---------------------------------------------------------------- kernels


@pytest.mark.long
def test_given_debian_13_then_cpus_are_registered_and_memory_can_be_taken_away(
    host: GuestHost,
) -> None:
    if missing("13-cloud"):
        pytest.skip(NOT_BUILT)
    with booted(host, a_debian("debian-13", "13-cloud")) as guest:
        assert guest.status["currentCPUTopology"]["possible"] == 4
        guest.becomes(3, "1536Mi")
        guest.becomes(1, "1Gi")
        guest.becomes(2, "2Gi")


@pytest.mark.soak
def test_given_a_kernel_booted_for_one_cpu_then_the_plan_says_so_before_the_edit(
    host: GuestHost,
) -> None:
    if missing("12-cloud"):
        pytest.skip(NOT_BUILT)
    manifest = a_debian("few-cpus")
    manifest["spec"]["template"]["spec"]["domain"]["firmware"] = {"serial": "chosen"}
    with booted(host, manifest) as guest:
        guest.console.run("sed -i 's/console=/nr_cpus=1 console=/' /boot/grub/grub.cfg; sync")
        before = guest.boot_id()
        host.run("virtctl", "soft-reboot", guest.name)
        until("another boot", lambda: guest.boot_again() != before)
        guest.agent_is(True)
        until("it is known", lambda: guest.status["currentCPUTopology"].get("possible") == 1)
        needs_a_restart(guest)


def needs_a_restart(guest: DebianGuest) -> None:
    """Expect the plan of another socket to need a restart because of the guest's kernel."""
    patch = '{"spec":{"template":{"spec":{"domain":{"cpu":{"sockets":2}}}}}}'
    done = guest.host.attempt("virtctl", "plan", guest.name, "--patch", patch, "-o", "json")
    assert done.returncode == 2, done.stdout
    (change,) = json.loads(done.stdout)["changes"]
    assert change["reason"] == "GuestKernelLimit"
