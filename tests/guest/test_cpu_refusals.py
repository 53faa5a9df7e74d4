"""Guests whose CPUs cannot be given to them: nothing runs, and the pod says why."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.node import exclusive
from livevirt.node.cgroups import PodCgroup

from .node_world import (
    World,
    a_blank_vmi,
    a_data_dir,
    an_image_store,
    leftovers,
    opened,
    qemus,
    working,
)

pytestmark = pytest.mark.guest

OWN = {"sockets": 1, "cores": 1, "threads": 1, "dedicatedCpuPlacement": True}
MANAGED = {"kubevirt.io/cpumanager": "true"}


@pytest.fixture
def root() -> Iterator[Path]:
    with a_data_dir() as path:
        yield path


@pytest.fixture(scope="module")
def images() -> Iterator[Path]:
    with an_image_store() as path:
        yield path


@pytest.fixture
async def world(root: Path, images: Path) -> AsyncIterator[World]:
    async with opened(root, images) as world:
        yield world


def an_own_vmi() -> Object:
    vmi = a_blank_vmi()
    vmi["spec"]["domain"]["cpu"] = OWN
    return vmi


def exactly(cpu: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "512Mi"}
    return {"requests": amounts, "limits": amounts}


def waiting(world: World) -> dict[str, Any]:
    return world.container().get("state", {}).get("waiting") or {}


async def test_given_a_pod_that_asks_for_no_cpu_alone_then_its_guest_shares_none(
    world: World, root: Path
) -> None:
    async with working(world.agent):
        await world.make(an_own_vmi())
        await world.until("it waits", lambda: waiting(world).get("message"))
        assert waiting(world) == {
            "reason": "CreateContainerConfigError",
            "message": "the guest needs dedicated CPUs and its pod requests none",
        }
        assert qemus(root) == []


async def test_given_more_cpus_than_there_are_then_it_waits_for_them(
    world: World, root: Path
) -> None:
    if world.agent.shares_cpus:
        pytest.skip(world.agent.shares_cpus)
    many = len(os.sched_getaffinity(0))
    async with working(world.agent):
        await world.make(an_own_vmi(), MANAGED, **exactly(str(many)))
        await world.until("it waits", lambda: waiting(world).get("message"))
        assert f"{many} wanted, {many - 1} left" in waiting(world)["message"]
        assert qemus(root) == []


async def test_given_threads_that_cannot_be_pinned_then_the_guest_ends_and_says_so(
    world: World, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if world.agent.shares_cpus or len(os.sched_getaffinity(0)) < 2:
        pytest.skip(world.agent.shares_cpus or "this machine has one CPU")

    async def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, "the kernel says no")

    monkeypatch.setattr(exclusive, "pin", refuse)
    async with working(world.agent):
        await world.make(an_own_vmi(), MANAGED, **exactly("1"))
        await world.until("it has failed", lambda: world.pod_phase() == "Failed")
        assert "the kernel says no" in world.pod()["status"]["message"]
        assert qemus(root) == []
        assert leftovers(root) == []


async def test_given_a_cpuset_that_cannot_be_set_then_qemu_is_not_started(
    world: World, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if world.agent.shares_cpus:
        pytest.skip(world.agent.shares_cpus)

    def refuse(self: PodCgroup, cpus: Sequence[int]) -> None:
        raise OSError(errno.EBUSY, "the kernel says no")

    with monkeypatch.context() as patch:
        patch.setattr(PodCgroup, "set_cpus", refuse)
        async with working(world.agent):
            await world.make(a_blank_vmi())
            await world.until("it waits", lambda: waiting(world).get("message"))
            assert waiting(world)["reason"] == "RunContainerError"
            assert "the kernel says no" in waiting(world)["message"]
            assert qemus(root) == []
