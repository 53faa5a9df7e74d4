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

from ..guest.guest_host import GONE, IMAGE, GuestHost, image_missing, kill, until
from ..guest.moving_guest import (
    FINAL,
    MOVE_SECONDS,
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
        pytest.param(True, id="at-every-point", marks=pytest.mark.long),
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
    assert (ended["status"]["phase"], guest.node) == ("Failed", before)
    guest.is_alone()
    guest.move(f"after-{phase.lower()}")
    guest.went_on()


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
