"""Guests with less memory than they booted with: the balloon takes it, and gives it back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest

from livevirt.kube.objects.quantity import parse

from .debian_guest import DebianGuest, a_debian, missing
from .debian_guest import booted as debian_booted
from .guest_host import IMAGE, GuestHost, Object, image_missing, running_host, until
from .live_guest import MEMORY, LiveGuest, a_live_vm
from .moving_guest import two_nodes

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

BOOT = (1, "512Mi")
FILL = "dd if=/dev/zero of=/tmp/fill bs=1M count={}"
OOM = "dmesg | grep -ci 'out of memory' || true"


@pytest.fixture(scope="module")
def host() -> Iterator[GuestHost]:
    with running_host() as host:
        yield host


@pytest.fixture(scope="module")
def booted(host: GuestHost) -> LiveGuest:
    guest = LiveGuest(host, a_live_vm("small"))
    host.apply(guest.manifest)
    guest.begin()
    until("balloon statistics", lambda: memory(guest).get("balloonStatistics"))
    return guest


@pytest.fixture
def guest(booted: LiveGuest) -> LiveGuest:
    """The guest at the size it booted with."""
    if booted.asked != BOOT:
        booted.ask(*BOOT)
    booted.settles()
    return booted


def memory(guest: LiveGuest) -> Object:
    found: Object = guest.host.get("vmi", guest.name)["status"].get("memory") or {}
    return found


def ballooned(guest: LiveGuest) -> int:
    return parse(memory(guest)["guestBallooned"]).bytes


def has_ballooned(guest: LiveGuest, amount: str) -> None:
    """Expect the guest to have given back so much, and its status to add up."""
    found = memory(guest)
    sizes = {key: parse(found[key]).bytes for key in found if key.startswith("guest")}
    assert sizes["guestBallooned"] == parse(amount).bytes
    assert sizes["guestCurrent"] == sizes["guestPlugged"] - sizes["guestBallooned"]
    assert found["guestAtBoot"] == "512Mi"


def test_the_guest_follows_below_the_size_it_booted_with(guest: LiveGuest) -> None:
    guest.becomes(1, "320Mi")
    has_ballooned(guest, "192Mi")
    guest.becomes(1, "256Mi")
    has_ballooned(guest, "256Mi")
    guest.becomes(1, "384Mi")
    guest.becomes(*BOOT)
    has_ballooned(guest, "0")


def test_it_goes_from_more_than_it_booted_with_to_less_and_back(guest: LiveGuest) -> None:
    for size in ("768Mi", "320Mi", "1Gi", "512Mi"):
        guest.becomes(1, size)
    has_ballooned(guest, "0")


def test_given_the_server_is_killed_meanwhile_then_the_change_and_the_next_are_done(
    guest: LiveGuest,
) -> None:
    guest.ask(1, "256Mi")
    guest.host.server.kill()
    guest.host.server.start()
    guest.host.found(guest.name)
    guest.has_what_it_asked_for()
    guest.becomes(*BOOT)


def test_given_little_memory_is_free_then_it_stops_and_says_so_and_nothing_is_killed(
    guest: LiveGuest,
) -> None:
    guest.host.shell(guest.name, FILL.format(200))
    try:
        guest.ask(1, "192Mi")
        until("it stops", lambda: guest.reasons() == {MEMORY: "GuestNotAccepting"}, 60)
        assert parse("192Mi").bytes < parse(memory(guest)["guestCurrent"]).bytes
    finally:
        guest.host.shell(guest.name, "rm /tmp/fill")
    guest.settles()
    assert guest.host.shell(guest.name, OOM) == "0"
    guest.has_what_it_asked_for()


def test_the_plan_knows_how_far_it_can_go(guest: LiveGuest) -> None:
    def planned(size: str) -> Object:
        domain = {"memory": {"guest": size}}
        patch = json.dumps({"spec": {"template": {"spec": {"domain": domain}}}})
        done = guest.host.attempt("virtctl", "plan", guest.name, "--patch", patch, "-o", "json")
        (change,) = json.loads(done.stdout)["changes"]
        found: Object = change
        return found

    assert planned("128Mi")["verdict"] == "Live"
    below = planned("96Mi")
    assert (below["verdict"], below["reason"]) == ("Restart", "BelowBootSize")
    assert below["nearestLive"] == "128Mi"


# ------------------------------------------------------------ on another node


@pytest.mark.long
def test_given_a_migration_then_the_balloon_moves_along_and_gives_back_there() -> None:
    with two_nodes() as host:
        guest = LiveGuest(host, a_live_vm("travels"))
        host.apply(guest.manifest)
        guest.begin()
        until("balloon statistics", lambda: memory(guest).get("balloonStatistics"))
        guest.becomes(1, "320Mi")
        host.run("virtctl", "migrate", guest.name, "--wait")
        has_ballooned(guest, "192Mi")
        assert guest.look().memory == guest.born.look.memory - parse("192Mi").bytes
        for size in ("256Mi", "512Mi"):
            guest.ask(1, size)
            guest.settles()
        has_ballooned(guest, "0")
        assert guest.look().memory == guest.born.look.memory


# ------------------------------------------------------------ a distribution under pressure


def is_under_way(debian: DebianGuest) -> bool:
    return bool(debian.changes()) and debian.reason(MEMORY) != "GuestNotAccepting"


@pytest.mark.skipif(missing("12-cloud"), reason="the image is not built: make distributions")
@pytest.mark.parametrize(
    "rounds", [pytest.param(2, marks=pytest.mark.long), pytest.param(20, marks=pytest.mark.soak)]
)
def test_given_debian_needs_its_memory_then_nothing_in_it_is_killed(
    host: GuestHost, rounds: int
) -> None:
    """Something in the guest takes memory while the balloon does; what is too much is not given."""
    with debian_booted(host, a_debian("pressed")) as debian:
        until("balloon statistics", lambda: debian.status["memory"].get("balloonStatistics"))
        for number in range(rounds):
            take = 150 + 50 * (number % 6)
            debian.console.run(f"dd if=/dev/zero of=/dev/shm/fill bs=1M count={take} 2>/dev/null &")
            debian.ask(1, "384Mi")
            until("it stops, or has it", lambda: not is_under_way(debian), 90)
            debian.console.run("wait; rm /dev/shm/fill")
            debian.settles(1, "384Mi")
            debian.ask(1, "1Gi")
            debian.settles(1, "1Gi")
        assert debian.console.run(OOM) == "0"
        assert debian.console.run("systemctl is-active qemu-guest-agent") == "active"
