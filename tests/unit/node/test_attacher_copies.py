"""The loop that gives a guest its volumes, when what is on them goes to another claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from livevirt.node import attacher as attachers
from livevirt.node import copying
from livevirt.node.attacher import Attacher
from livevirt.node.attachments import Goal, goal
from livevirt.node.volumes import VolumeProblem
from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.mirror import Copy, EndCopy, FinishCopy, StartCopy
from livevirt.qemu.plan import CloseImage, Step

from .test_attacher import Claims, Stub, a_goal, attaching

SIZE = 10


@dataclass
class Copier(Stub):
    """A guest whose disks QEMU copies, as far as it is let."""

    async def do(self, step: Step) -> None:
        if not isinstance(step, StartCopy | FinishCopy | EndCopy):
            await super().do(step)
            return
        await asyncio.sleep(0)
        if (error := self.fail(step)) is not None:
            raise error
        self.done.append(step)
        now = self.observed
        match step:
            case StartCopy(disk, _, _):
                assert disk.node is not None
                copy = Copy(disk.node, "running", 0, SIZE)
                idle = tuple(sorted({*now.idle_nodes, disk.node}))
                now = replace(now, copies=(*now.copies, copy), idle_nodes=idle)
            case FinishCopy(disk):
                (drive,) = (each for each in now.drives if each.id == disk.id)
                assert drive.node is not None
                others = tuple(each for each in now.drives if each.id != disk.id)
                drives = (*others, replace(drive, node=disk.node))
                idle = tuple({*now.idle_nodes, drive.node} - {disk.node})
                now = replace(now, drives=drives, idle_nodes=idle)
                self.observed = now
                self.becomes("concluded", SIZE)
                now = self.observed
            case EndCopy(target):
                now = replace(now, copies=tuple(c for c in now.copies if c.target != target))
        self.observed = now

    def becomes(self, status: str, done: int = 0, error: str = "") -> None:
        (copy,) = self.observed.copies
        copy = replace(copy, status=status, done=done, error=error)
        self.observed = replace(self.observed, copies=(copy,))


def moving(source: str, destination: str, phase: str = copying.COPYING) -> Goal:
    entry = {
        "volumeName": "data",
        "sourcePVCInfo": {"claimName": source},
        "destinationPVCInfo": {"claimName": destination},
        "phase": phase,
    }
    claim = {"claimName": destination, "hotpluggable": True}
    disks = [{"name": "cd", "cdrom": {"bus": "sata"}}, {"name": "data", "disk": {"bus": "scsi"}}]
    return goal(
        {
            "metadata": {},
            "spec": {
                "domain": {"devices": {"disks": disks}},
                "volumes": [{"name": "data", "persistentVolumeClaim": claim}],
            },
            "status": {"migratedVolumes": [entry]},
        }
    )


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.005)


def begins(guest: Copier) -> int:
    """Return how often a copy was begun."""
    return sum(isinstance(step, StartCopy) for step in guest.done)


async def is_at(attacher: Attacher, phase: str, reason: str = "") -> None:
    """Wait until the copy is there."""

    def there() -> bool:
        found = attacher.copies.get("data")
        told = found.problem.reason if found and found.problem else ""
        return found is not None and (found.phase, told) == (phase, reason)

    await until(there)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachers, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(copying, "_FIRST_WAIT", 0.02)


async def begun(attacher: Attacher, tells: Callable[..., Any]) -> None:
    attacher.want(a_goal(data="old"))
    await tells(data="Ready")
    attacher.want(moving("old", "new"))


async def test_a_volume_is_copied_and_switches_once_it_may() -> None:
    guest = Copier()
    async with attaching(guest) as (attacher, tells):
        await begun(attacher, tells)
        await is_at(attacher, copying.COPYING)
        guest.becomes("running", 4)
        await until(lambda: attacher.copies["data"].how == "40% copied")
        guest.becomes("ready", SIZE)
        await is_at(attacher, copying.COPIED)
        assert not any(isinstance(step, FinishCopy) for step in guest.done)
        attacher.want(moving("old", "new", copying.SWITCHING))
        await is_at(attacher, copying.DONE)
        attacher.want(a_goal(data="new"))
        await tells(data="Ready")
    assert [type(step) for step in guest.done][1:] == [StartCopy, FinishCopy, EndCopy, CloseImage]
    assert (guest.observed.copies, guest.observed.idle_nodes) == ((), ())


async def test_given_it_is_taken_back_then_the_copy_ends_and_its_image_is_closed() -> None:
    guest = Copier()
    async with attaching(guest) as (attacher, tells):
        await begun(attacher, tells)
        await is_at(attacher, copying.COPYING)
        drives = guest.observed.drives
        attacher.want(a_goal(data="old"))
        await until(lambda: not guest.observed.copies and not guest.observed.idle_nodes)
        await tells(data="Ready")
    assert guest.observed.drives == drives
    assert attacher.copies == {}


async def test_given_a_copy_is_found_then_whoever_comes_next_goes_on_with_it() -> None:
    guest = Copier()
    async with attaching(guest) as (attacher, tells):
        await begun(attacher, tells)
        await is_at(attacher, copying.COPYING)
    guest.becomes("ready", SIZE)
    async with attaching(guest) as (attacher, tells):
        attacher.want(moving("old", "new", copying.SWITCHING))
        await is_at(attacher, copying.DONE)
    assert begins(guest) == 1


async def test_a_copy_that_fails_is_told_and_tried_again() -> None:
    guest = Copier()
    async with attaching(guest) as (attacher, tells):
        await begun(attacher, tells)
        await is_at(attacher, copying.COPYING)
        guest.becomes("concluded", 4, "No space left on device")
        await is_at(attacher, copying.COPYING, copying.COPY_FAILED)
        problem = attacher.copies["data"].problem
        assert problem is not None
        assert "No space left on device" in problem.message
        await until(lambda: begins(guest) == 2)
        await tells(data="Ready")
        guest.becomes("ready", SIZE)
        await is_at(attacher, copying.COPIED)


REFUSALS = {
    "too small": ("the target holds 1 bytes and the disk has 2", copying.COPY_FAILED),
    "in use": ('Failed to get "write" lock', "ClaimInUse"),
}


@pytest.mark.parametrize(("said", "reason"), REFUSALS.values(), ids=REFUSALS)
async def test_a_copy_that_cannot_begin_is_told(said: str, reason: str) -> None:
    refused = CommandFailed("GenericError", said)
    guest = Copier(fail=lambda step: refused if isinstance(step, StartCopy) else None)
    async with attaching(guest) as (attacher, tells):
        await begun(attacher, tells)
        await is_at(attacher, copying.COPYING, reason)
        await tells(data="Ready")
        guest.fail = lambda _: None
        await until(lambda: guest.observed.copies)


async def test_given_the_new_claim_is_missing_then_the_guest_keeps_the_old_one() -> None:
    guest = Copier()
    claims = Claims({"new": VolumeProblem("FailedPvcNotFound", "PVC new not found")})
    async with attaching(guest, claims) as (attacher, tells):
        await begun(attacher, tells)
        await is_at(attacher, copying.COPYING, "FailedPvcNotFound")
        await tells(data="Ready")
        claims.problems.clear()
        await until(lambda: guest.observed.copies)
    assert [type(step) for step in guest.done][1:] == [StartCopy]
