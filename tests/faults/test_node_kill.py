"""The node agent killed, and the machine restarted, at the worst of moments."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from livevirt.kube.objects import core
from livevirt.node import pod_dir, process
from livevirt.node.process import Order, Process

from ..guest import node_world
from ..guest.node_world import (
    SPACE,
    World,
    a_blank_vmi,
    a_data_dir,
    an_agent,
    an_image_store,
    eventually,
    files,
    leftovers,
    opened,
    qemus,
    working,
)

pytestmark = pytest.mark.guest


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


def only(root: Path, name: str) -> Path:
    """Return that file of the one pod there is."""
    (found,) = root.glob(f"nodes/*/pods/*/{name}")
    return found


async def test_given_a_kill_between_intent_and_spawn_then_the_next_agent_spawns_once(
    world: World, root: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = asyncio.Event()

    async def never(_: Order) -> Process | None:
        reached.set()
        await asyncio.Event().wait()
        return None

    with monkeypatch.context() as patched:
        patched.setattr(process, "spawn", never)
        async with working(world.agent):
            await world.make(a_blank_vmi())
            await reached.wait()
    before = only(root, "intent.json").read_bytes()
    assert qemus(root) == []
    async with working(an_agent(world.client, root, images)):
        await world.until("it runs", lambda: world.phase() == "Running")
    assert len(qemus(root)) == 1
    assert only(root, "intent.json").read_bytes() == before


async def test_given_a_kill_before_the_intent_then_the_next_agent_begins_anew(
    world: World, root: Path, images: Path
) -> None:
    await world.make(a_blank_vmi())
    uid = world.pod()["metadata"]["uid"]
    half_made = root / "nodes" / node_world.NODE / "pods" / uid / "disks"
    half_made.mkdir(parents=True)
    (half_made / "root.qcow2").write_text("half an overlay")
    async with working(world.agent):
        await world.until("it runs", lambda: world.phase() == "Running")


async def test_given_the_machine_restarted_then_the_guest_has_failed_and_no_stranger_is_hurt(
    world: World, root: Path, images: Path
) -> None:
    async with working(world.agent):
        await world.make(a_blank_vmi())
        await world.until("it runs", lambda: world.pod_phase() == "Running")
    (pid,) = qemus(root)
    os.kill(pid, signal.SIGKILL)
    pods, run = root / "nodes" / node_world.NODE / "pods", root / "run"
    # A process that ends loses its command line first and its lock last.
    await eventually(
        "QEMU is gone", lambda: not any(pod.locked() for pod in pod_dir.all_in(pods, run))
    )
    intent = only(root, "intent.json")
    intent.write_text(json.dumps(json.loads(intent.read_text()) | {"bootId": "another"}))
    me = process.seen(os.getpid())
    assert me is not None
    only(root, "process").write_bytes(process.note(me))  # our id was QEMU's before
    async with working(an_agent(world.client, root, images)):
        await world.until("it failed", lambda: world.phase() == "Failed")
        await world.until("the pod too", lambda: world.pod_phase() == "Failed")
    assert world.vmi()["status"]["reason"] == "NodeRestarted"
    assert leftovers(root) == []


async def test_given_an_intent_of_a_newer_version_then_it_is_left_alone(
    world: World, root: Path, images: Path
) -> None:
    async with working(world.agent):
        await world.make(a_blank_vmi())
        await world.until("it runs", lambda: world.pod_phase() == "Running")
    before = qemus(root)
    intent = only(root, "intent.json")
    kept = intent.read_text()
    intent.write_text(json.dumps(json.loads(kept) | {"version": 99}))
    other = a_blank_vmi("other")
    async with working(an_agent(world.client, root, images)):
        await world.make(other)
        await world.until("others run", lambda: world.phase("other") == "Running")
        assert set(before) < set(qemus(root))
        assert world.phase() == "Running"
    intent.write_text(kept)


@pytest.mark.parametrize(
    "kills", [pytest.param(3, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.soak)]
)
async def test_given_kills_at_random_moments_then_a_guest_runs_on_and_nothing_is_left(
    root: Path, images: Path, kills: int
) -> None:
    async with opened(root, images) as world, working(world.agent):
        await world.make(a_blank_vmi("steady"))
        await world.until("it runs", lambda: world.pod_phase("steady") == "Running")
    (steady,) = qemus(root)
    dice = random.Random(kills)
    for _ in range(kills):
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, node_world.__file__, str(root), str(images), "many"),
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        assert await child.stdout.readline() == b"running\n"
        await asyncio.sleep(dice.uniform(0, 2.5))  # the moment is what is tested
        assert child.returncode is None
        child.kill()
        await child.wait()
        assert steady in qemus(root)
    async with opened(root, images) as world, working(world.agent):
        for pod in world.read.list(core.POD, SPACE):
            name = pod["metadata"]["name"]
            if "steady" not in name and "deletionTimestamp" not in pod["metadata"]:
                await world.client.delete(core.POD, name, SPACE, grace_seconds=1)
        await world.until("only one pod", lambda: len(world.read.list(core.POD, SPACE)) == 1)
        await eventually("only one guest", lambda: qemus(root) == [steady])
        await eventually("only one pod's files", lambda: len(files(root)) == 1)
        assert world.phase("steady") == "Running"
        assert len(leftovers(root)) <= 5  # sockets, disks, and three cgroups, of the one that runs
