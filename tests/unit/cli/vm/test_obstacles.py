"""What keeps a VM from running, and when waiting for it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from livevirt.cli.vm import obstacles, wait
from livevirt.cli.vm.obstacles import Obstacle, Patience

Object = dict[str, Any]


def a_vm(printed: str = "Starting", *conditions: Object, spec: Object | None = None) -> Object:
    status = {"printableStatus": printed, "conditions": [*conditions]}
    return {"metadata": {}, "spec": spec or {"runStrategy": "Always"}, "status": status}


def says(type_: str, status: str, reason: str = "") -> Object:
    return {"type": type_, "status": status, "reason": reason, "message": "why"}


CANNOT_PULL = says("Synchronized", "False", "ErrImagePull")
FOUND = {
    "nothing is reported": (a_vm(), None),
    "there is no VM": (None, None),
    "an image is missing": (a_vm("ErrImagePull", CANNOT_PULL), Obstacle("why", lasting=True)),
    "a claim is missing": (
        a_vm("ErrorPvcNotFound", says("Synchronized", "False", "FailedPvcNotFound")),
        Obstacle("why", lasting=True),
    ),
    "the quota is used up": (
        a_vm("Starting", says("Synchronized", "False", "FailedCreate")), Obstacle("why"),
    ),
    "no node has room": (
        a_vm("ErrorUnschedulable", says("PodScheduled", "False", "Unschedulable")),
        Obstacle("why"),
    ),
    "its instance type is missing": (
        a_vm("Stopped", says("Failure", "True", "FailedFindInstancetype")),
        Obstacle("why", lasting=True),
    ),
    "a volume is being imported": (
        a_vm("Provisioning", says("Provisioning", "True")), Obstacle("why"),
    ),
    "an import failed": (a_vm("DataVolumeError"), Obstacle("", lasting=True)),
    "it is paused": (a_vm("Paused", says("Paused", "True")), Obstacle("why", lasting=True)),
    "it was stopped again": (
        a_vm("Stopped", spec={"runStrategy": "Halted"}),
        Obstacle("its run strategy is Halted", lasting=True),
    ),
    "its instance makes way for the next": (
        {"metadata": {"deletionTimestamp": "now"}, "status": {"conditions": [CANNOT_PULL]}}, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("obj", "expected"), FOUND.values(), ids=FOUND)
def test_find(obj: Object | None, expected: Obstacle | None) -> None:
    assert obstacles.find(obj) == expected


def test_a_guest_that_fails_to_start_is_counted() -> None:
    vm = a_vm("CrashLoopBackOff")
    vm["status"]["startFailure"] = {"consecutiveFailCount": 3}
    assert obstacles.find(vm) == Obstacle("the guest failed to start 3 times", lasting=True)


def test_the_state_on_the_way_says_why() -> None:
    assert wait.state(a_vm("ErrImagePull", CANNOT_PULL)) == "ErrImagePull: why"
    assert wait.state(a_vm("Starting")) == "Starting"
    assert wait.state(a_vm("Stopping", CANNOT_PULL)) == "Stopping"


async def test_given_a_lasting_obstacle_then_patience_ends() -> None:
    patience = Patience(0.01)
    patience.observe(a_vm("ErrImagePull", CANNOT_PULL))
    async with asyncio.timeout(10):
        await patience.exhausted()
    assert patience.obstacle == Obstacle("why", lasting=True)


async def test_given_the_obstacle_goes_away_in_time_then_patience_lasts() -> None:
    patience = Patience(0.2)
    patience.observe(a_vm("ErrImagePull", CANNOT_PULL))
    waiting = asyncio.create_task(patience.exhausted())
    await asyncio.sleep(0)
    patience.observe(a_vm("Starting"))
    done, _ = await asyncio.wait([waiting], timeout=0.5)
    assert not done
    waiting.cancel()
