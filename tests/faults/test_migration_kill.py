"""Guests on the move whose control plane, or whose target, is killed at each step of the way.

One guest lives through all of it. A move without a kill writes down its steps: commands to QEMU and
writes to the store. Then it is moved again and again, each time by a server that kills itself at
another of those steps (`fail_point.py`). The next server must leave just one QEMU, on the node that
the instance names, with a guest that never went back.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..guest.guest_host import GONE, IMAGE, GuestHost, Object, image_missing, kill, until
from ..guest.moving_guest import (
    FINAL,
    MOVE_SECONDS,
    PAUSE_SECONDS,
    MovingGuest,
    Ticks,
    a_movable_vm,
    sent_slowly,
    two_nodes,
)

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

FAIL_POINT = str(Path(__file__).with_name("fail_point.py"))
# What goes on beside a move, and what changes nothing: to die there is to die before the next step.
BESIDE = ("write leases", "write nodes", "write events")
READS = ("qmp query-", "qmp x-query-", "qmp qom-list", "qmp qom-get", "agent ")
PHASES = ("Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running")


class Moved:
    """The guest that is moved, under servers that die."""

    def __init__(self, host: GuestHost) -> None:
        self.host = host
        self.trace = host.server.home / "trace"
        self.guest = MovingGuest(host, a_movable_vm("mover"))
        self.numbers = itertools.count(1)
        self.missed: list[str] = []
        self.guest.boot()
        host.server.kill()

    def move(self, point: str = "") -> list[str]:
        """Ask for a move under a server that dies at that point; return the steps it came to.

        Then another server brings it to an end. Afterwards there is no server.
        """
        self.trace.unlink(missing_ok=True)
        self.host.server.start(sys.executable, FAIL_POINT, str(self.trace), point)
        self.host.found(self.guest.name)
        name = f"move-{next(self.numbers)}"
        self.trace.touch()
        with contextlib.suppress(AssertionError, *GONE):
            self.guest.ask(name)
        until(f"an end, or to die {point}", lambda: self._over(name), MOVE_SECONDS)
        steps = self.trace.read_text().splitlines()
        if point and self.host.server.alive():
            self.missed.append(point)
        self.host.server.kill()
        assert 1 <= len(self.host.qemus(self.guest.name)) <= 2
        self._finish(name)
        return steps

    def _over(self, name: str) -> bool:
        if not self.host.server.alive():
            return True
        with contextlib.suppress(*GONE):
            migration = self.guest.migration(name)
            ended = (migration.get("status") or {}).get("phase") in FINAL
            return ended and "finalizers" not in migration["metadata"]
        return False

    def _finish(self, name: str) -> None:
        self.host.server.start()
        if self.guest.migration(name):  # else the server died before it was stored
            self.guest.ends(name)
        self.guest.is_alone()
        self.guest.went_on()
        # A guest goes on without the names of its disks, and could never move again.
        assert list((self.host.server.data / "guests").glob("*/*"))
        self.host.server.kill()


@pytest.fixture
def moved() -> Iterator[Moved]:
    with two_nodes() as host:
        yield Moved(host)


def points(steps: list[str]) -> list[str]:
    """Return a point before each step that changes something, and one after the last."""
    changes = [step for step in steps if not step.partition(" ")[2].startswith((*BESIDE, *READS))]
    return [*(f"before {step}" for step in changes), f"after {changes[-1]}"]


@pytest.mark.parametrize(
    "full",
    [
        pytest.param(False, id="at-a-few-points", marks=pytest.mark.slow),
        pytest.param(True, id="at-every-point", marks=pytest.mark.soak),
    ],
)
def test_given_kills_between_the_steps_of_a_move_then_one_guest_is_left_that_never_went_back(
    moved: Moved, full: bool
) -> None:
    with Ticks(moved.host) as ticks:
        found = points(moved.move())
        assert any("qmp migrate" in point for point in found)
        if not full:
            dice = random.Random(7)
            found = [*dice.sample(found, 4), "before 1 qmp cont"]
        for point in found:
            print(point)
            moved.move(point)
        moved.host.server.start()
        ticks.counts_on()
    print(f"{len(found)} points, not come to: {moved.missed}")
    assert len(moved.missed) < len(found) / 2  # or nothing was tested
    ticks.never_went_back()


@pytest.mark.long
@pytest.mark.parametrize("phase", PHASES)
def test_given_the_target_is_killed_in_a_phase_then_the_guest_stays_and_can_move_again(
    two_hosts: MovingGuest, phase: str
) -> None:
    guest, host, before = two_hosts, two_hosts.host, two_hosts.node
    (source,) = host.qemus(guest.name)
    name = f"killed-{phase.lower()}"
    with sent_slowly(host), Ticks(host) as ticks:
        ticks.counts_on()
        guest.ask(name)
        until(f"{phase}", lambda: _has_come_to(guest, name, phase), MOVE_SECONDS)
        kill(set(host.qemus(guest.name)) - {source})
        host.server.kubectl(
            "delete", "pod", "-l", f"kubevirt.io/migrationJobUID={_uid(guest, name)}",
            "--grace-period=1", "--wait=false",
        )  # fmt: skip
        ended = guest.ends(name)
        ticks.counts_on()
    guest.went_on()
    ticks.never_went_back()
    ticks.paused_at_most(PAUSE_SECONDS)
    assert (ended["status"]["phase"], guest.node) == ("Failed", before)
    guest.is_alone()
    guest.move(f"after-{phase.lower()}")
    guest.went_on()


class Killing:
    """A guest that is moved by servers that kill its target's QEMU at a chosen step."""

    def __init__(self, host: GuestHost) -> None:
        self.host, self.trace = host, host.server.home / "trace"
        self.guest = MovingGuest(host, a_movable_vm("mover"))
        self.guest.boot()

    def move(self, name: str, point: str) -> Object:
        """Ask for a move whose target is killed at that point; return how it ended."""
        self.host.server.kill()
        self.trace.unlink(missing_ok=True)
        self.host.server.start(sys.executable, FAIL_POINT, str(self.trace), f"kill {point}")
        until("its node", lambda: self.host.phase(self.guest.name) == "Running", MOVE_SECONDS)
        self.trace.touch()
        self.guest.ask(name)
        ended = self.guest.ends(name)
        until(
            "nothing to hold it",
            lambda: "finalizers" not in self.guest.migration(name)["metadata"],
            MOVE_SECONDS,
        )
        assert point.partition(" ")[2] in self.trace.read_text().splitlines()
        return ended


@pytest.fixture(scope="module")
def killing() -> Iterator[Killing]:
    with two_nodes() as host:
        yield Killing(host)


@pytest.mark.long
def test_given_the_target_dies_with_the_whole_guest_before_that_is_noted_then_it_goes_on_here(
    killing: Killing,
) -> None:
    guest, before = killing.guest, killing.guest.node
    with Ticks(killing.host) as ticks:
        ticks.counts_on()
        ended = killing.move("whole", "before 1 whole")
        ticks.counts_on()
    assert (ended["status"]["phase"], guest.node) == ("Failed", before)
    guest.is_alone()
    guest.went_on()
    ticks.never_went_back()


@pytest.mark.long
def test_given_a_paused_guest_was_sent_in_vain_then_it_stays_paused_until_it_is_unpaused(
    killing: Killing,
) -> None:
    guest, host, before = killing.guest, killing.host, killing.guest.node
    host.run("virtctl", "pause", "vm", guest.name)
    until("a pause", lambda: host.holds("vmi", guest.name, "Paused"), MOVE_SECONDS)
    with Ticks(host) as ticks:
        ended = killing.move("asleep", "before 1 whole")
        assert (ended["status"]["phase"], guest.node) == ("Failed", before)
        guest.is_alone()
        again = guest.attempt("again")
        assert "unpaused" in again["status"]["migrationState"]["failureReason"]
        assert host.holds("vmi", guest.name, "Paused")
        assert ticks.last == 0  # it has not counted since it was paused
        host.run("virtctl", "unpause", "vm", guest.name)
        ticks.counts_on()
    until("no pause", lambda: not host.holds("vmi", guest.name, "Paused"), MOVE_SECONDS)
    guest.went_on()
    ticks.never_went_back()
    guest.move("awake")
    guest.went_on()


@pytest.mark.long
@pytest.mark.parametrize("point", ["before 1 qmp cont", "after 1 qmp cont"])
def test_given_the_target_dies_once_the_guest_may_run_there_then_it_ends_and_is_started_anew(
    killing: Killing, point: str
) -> None:
    """Nobody can tell whether it has run there, so it does not go on where it was."""
    guest, host = killing.guest, killing.host
    uid = host.uid(guest.name)
    ended = killing.move(point.replace(" ", "-"), point)
    assert ended["status"]["phase"] == "Succeeded"
    until("another instance", lambda: host.uid(guest.name) not in ("", uid), MOVE_SECONDS)
    host.answers(guest.name, host.uid(guest.name))
    assert host.booted_anew(guest.name, guest.born)
    guest.is_alone()
    guest.boot()


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[MovingGuest]:
    with two_nodes() as host:
        guest = MovingGuest(host, a_movable_vm("mover"))
        guest.boot()
        yield guest


def _uid(guest: MovingGuest, name: str) -> str:
    return str(guest.migration(name)["metadata"]["uid"])


def _has_come_to(guest: MovingGuest, name: str, phase: str) -> bool:
    status = guest.migration(name).get("status") or {}
    passed = [each["phase"] for each in status.get("phaseTransitionTimestamps") or ()]
    return phase in passed
