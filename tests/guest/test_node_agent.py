"""The node agent with a real server behind it and real QEMU under it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from livevirt.kube.client.interface import Patch
from livevirt.kube.objects import core
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.node import pod_dir
from livevirt.node.guest_endpoints import GuestEndpoints
from livevirt.node.images import ImageStore
from livevirt.qemu import lifecycle
from livevirt.qemu.session import Session

from . import node_world
from .node_world import (
    GUEST,
    NODE,
    SPACE,
    World,
    a_blank_vmi,
    a_data_dir,
    a_vmi,
    an_image_store,
    cgroup_folder,
    eventually,
    files,
    leftovers,
    opened,
    qemus,
    working,
)
from .qemu.test_qemu_lifecycle import PANIC, POWEROFF

pytestmark = pytest.mark.guest

PRINT_FOR_EVER = bytes.fromhex("baf803 b078 ee ebfd")  # mov dx,3f8h; mov al,'x'; out dx,al; jmp
SOON = 5.0  # seconds within which an end must be told, also where much else goes on
UPTIME = "cut -d' ' -f1 /proc/uptime"
OF_THE_NODE = (core.NODE.resource, core.LEASE.resource)  # written however slow a guest is


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


async def running(world: World, vmi: Object, **resources: Any) -> None:
    await world.make(vmi, **resources)
    name = vmi["metadata"]["name"]
    await world.until("the VMI runs", lambda: world.phase(name) == "Running")
    await world.until("its pod runs", lambda: world.pod_phase(name) == "Running")


async def test_a_node_registers_itself_with_what_it_offers(world: World) -> None:
    async with working(world.agent):
        await world.until("the lease", lambda: renewed(world))
        node = world.get(core.NODE, NODE)
    assert node["metadata"]["labels"]["kubevirt.io/schedulable"] == "true"
    assert node["status"]["allocatable"]["cpu"] == "4"
    assert node["status"]["allocatable"]["devices.kubevirt.io/kvm"] == "0"
    told = {each["type"]: each for each in node["status"]["conditions"]}
    assert told["Ready"]["status"] == "True"
    assert told["livevirt.io/Accelerated"]["message"] == "asked for by a test"
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"] == "qemu://7.2.0"


def renewed(world: World) -> bool:
    lease = world.read.get(core.LEASE, NODE, "kube-node-lease")
    return lease is not None and lease["spec"]["holderIdentity"] == NODE


async def test_given_no_such_image_then_the_pod_says_so_and_starts_once_it_is_imported(
    world: World, images: Path, root: Path
) -> None:
    async with working(world.agent):
        await world.make(a_blank_vmi(image="later"))
        await world.until("it waits", lambda: "waiting" in world.container().get("state", {}))
        waiting = world.container()["state"]["waiting"]
        assert waiting["reason"] == "ErrImagePull"
        assert "livevirt image import PATH --name later" in waiting["message"]
        assert world.phase() == "Scheduled"
        blank = root / "blank.img"
        blank.write_bytes(bytes(1 << 20))
        ImageStore(images).import_(blank, "later")
        await world.until("it runs", lambda: world.phase() == "Running")


async def test_given_qemu_is_killed_then_the_guest_has_failed_soon_and_nothing_is_left(
    world: World, root: Path
) -> None:
    async with working(world.agent):
        await running(world, a_blank_vmi())
        (pid,) = qemus(root)
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        await world.until("VMI failed", lambda: world.phase() == "Failed")
        await world.until("pod failed", lambda: world.pod_phase() == "Failed")
        assert time.monotonic() - began < SOON
        await eventually("nothing left", lambda: not leftovers(root))
    assert world.vmi()["status"]["reason"] == "Crashed"
    assert world.container()["state"]["terminated"]["exitCode"] == 1
    assert leftovers(root) == []


async def test_given_a_guest_ignores_the_power_button_then_it_is_switched_off_after_its_grace(
    world: World, root: Path
) -> None:
    async with working(world.agent):
        await running(world, a_blank_vmi())
        await world.client.delete(core.POD, world.pod()["metadata"]["name"], SPACE, grace_seconds=1)
        await world.until("the pod is gone", lambda: not world.pod())
        await eventually("no files", lambda: not files(root))
    assert world.phase() == "Succeeded"
    assert qemus(root) == leftovers(root) == []


@pytest.mark.long
async def test_given_qemu_hangs_then_it_is_switched_off_after_its_grace(
    world: World, root: Path
) -> None:
    async with working(world.agent):
        await running(world, a_blank_vmi())
        (pid,) = qemus(root)
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        await world.client.delete(core.POD, world.pod()["metadata"]["name"], SPACE, grace_seconds=2)
        await world.until("the pod is gone", lambda: not world.pod())
        assert time.monotonic() - began < 30
    assert qemus(root) == leftovers(root) == []


async def test_given_a_pod_vanishes_from_the_api_then_its_qemu_goes_too(
    world: World, root: Path
) -> None:
    async with working(world.agent):
        await running(world, a_blank_vmi())
        await world.client.delete(core.POD, world.pod()["metadata"]["name"], SPACE, grace_seconds=0)
        await eventually("QEMU is gone", lambda: not qemus(root))
        await world.until("the VMI ended", lambda: world.phase() == "Succeeded")
        await eventually("no files", lambda: not files(root))


async def test_given_qemu_cannot_start_then_the_pod_tells_what_it_said(
    world: World, root: Path
) -> None:
    vmi = a_blank_vmi()
    vmi["spec"]["domain"]["machine"] = {"type": "pc-q35-0.1"}
    async with working(world.agent):
        await world.make(vmi)
        await world.until("failed", lambda: world.pod_phase() == "Failed")
        assert "unsupported machine type" in world.container()["state"]["terminated"]["message"]
        await world.until("VMI failed", lambda: world.phase() == "Failed")


ENDS = {
    "powers off": (POWEROFF, "Succeeded", "", 0),
    "panics": (PANIC, "Failed", "GuestPanicked", 1),
}


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "while the agent is down"])
@pytest.mark.parametrize(("code", "phase", "reason", "status"), ENDS.values(), ids=ENDS)
async def test_given_a_guest_ends_by_itself_then_it_is_told_how(
    world: World, root: Path, images: Path, code: bytes, phase: str, reason: str, status: int,
    watched: bool,
) -> None:  # fmt: skip
    boot = root / "boot.img"
    boot.write_bytes((code.ljust(510, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0"))
    ImageStore(images).import_(boot, "ends")
    async with working(world.agent):
        await running(world, a_blank_vmi(image="ends", startStrategy="Paused"))
        await world.until("it is paused", lambda: world.condition("Paused"))
        await world.until("it is not ready", lambda: not ready(world))
        if watched:
            began = time.monotonic()
            await GuestEndpoints([world.agent]).unpause(SPACE, "web")
            await world.until("the VMI ended", lambda: world.phase() == phase)
            await world.until("the pod ended", lambda: world.pod_phase() == phase)
            assert time.monotonic() - began < 2 * SOON  # the firmware needs its time too
            await eventually("nothing left", lambda: not leftovers(root))
    if not watched:
        async with await Session.connect(qmp_socket(root)) as qmp:
            with qmp.listen("STOP") as events:
                await lifecycle.resume(qmp)
                await anext(events)
        async with working(node_world.an_agent(world.client, root, images)):
            await world.until("the VMI ended", lambda: world.phase() == phase, SOON)
            await world.until("the pod ended", lambda: world.pod_phase() == phase, SOON)
            await eventually("nothing left", lambda: not leftovers(root))
    assert (world.phase(), world.vmi()["status"].get("reason", "")) == (phase, reason)
    assert world.container()["state"]["terminated"]["exitCode"] == status
    assert qemus(root) == leftovers(root) == []


def qmp_socket(root: Path) -> str:
    (found,) = root.glob("run/*/qmp.sock")
    return str(found)


async def test_given_a_guest_that_prints_without_end_then_its_log_stays_short(
    world: World, root: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_dir, "MOST_BYTES", 20_000)
    monkeypatch.setattr(pod_dir, "KEPT_BYTES", 10_000)
    monkeypatch.setattr(pod_dir, "LOOK_SECONDS", 0.1)
    boot = root / "boot.img"
    boot.write_bytes((PRINT_FOR_EVER.ljust(510, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0"))
    ImageStore(images).import_(boot, "prints")
    async with working(world.agent):
        await running(world, a_blank_vmi(image="prints"))
        pod = world.pod()["metadata"]["name"]
        log = await GuestEndpoints([world.agent]).log_file(SPACE, pod, "guest-console-log")
        sizes = [0]

        def cut() -> bool:
            sizes.append(log.stat().st_size)
            return sizes[-1] < sizes[-2]

        for _ in range(2):
            await eventually("its log is cut", cut)
        assert set(log.read_bytes()) == {ord("x")}


async def test_a_reset_restarts_the_guest_and_not_its_pod(world: World, root: Path) -> None:
    async with working(world.agent):
        await running(world, a_blank_vmi())
        before, pod = qemus(root), world.pod()
        guest = world.agent.guest(SPACE, "web")
        assert guest is not None
        with guest.qmp().listen("RESET") as events:
            await GuestEndpoints([world.agent]).reset(SPACE, "web")
            async with asyncio.timeout(60):
                await anext(events)
        assert qemus(root) == before
        assert world.pod() == pod


async def test_a_pod_is_resized_in_place_and_waits_or_is_refused_where_the_node_is_too_small(
    world: World, root: Path
) -> None:
    async with working(world.agent):
        await running(
            world,
            a_blank_vmi(),
            requests={"cpu": "100m", "memory": "256Mi"},
            limits={"cpu": "1", "memory": "512Mi"},
        )
        await running(world, a_blank_vmi("other"), requests={"cpu": "2", "memory": "1Gi"})
        await resize(world, requests={"cpu": "500m", "memory": "300Mi"}, limits={"cpu": "1500m"})
        await world.until(
            "applied", lambda: world.container()["resources"]["limits"]["cpu"] == "1500m"
        )
        assert world.container()["allocatedResources"]["cpu"] == "500m"
        if world.agent.unconfined == "":
            (quota,) = cgroup_values("cpu", "cpu.cfs_quota_us", world) or ["150000"]
            assert quota == "150000"

        await resize(world, requests={"cpu": "2500m"}, limits={"cpu": "3"})
        await world.until("deferred", lambda: pending(world) == "Deferred")
        assert world.container()["allocatedResources"]["cpu"] == "500m"
        await world.client.delete(
            core.POD, world.pod("other")["metadata"]["name"], SPACE, grace_seconds=0
        )
        await world.until(
            "granted", lambda: world.container()["allocatedResources"]["cpu"] == "2500m"
        )
        await world.until("nothing waits", lambda: pending(world) == "")


async def resize(world: World, **resources: Any) -> None:
    pod = world.pod()["metadata"]["name"]
    patch = {"spec": {"containers": [{"name": "compute", "resources": resources}]}}
    await world.client.patch(core.POD, pod, SPACE, Patch("strategic", patch), subresource="resize")


def pending(world: World) -> str:
    found = world.pod()["status"]["conditions"]
    return next((each["reason"] for each in found if each["type"] == "PodResizePending"), "")


def cgroup_values(controller: str, name: str, world: World) -> list[str]:
    mine = f"pod{world.pod()['metadata']['uid']}"
    folders = [each for each in cgroup_folder(controller) if each.name == mine]
    return [(folder / name).read_text().strip() for folder in folders if (folder / name).exists()]


async def test_given_a_memory_limit_too_small_then_the_oom_kill_is_told(world: World) -> None:
    if world.agent.unconfined:
        pytest.skip(f"no cgroups here: {world.agent.unconfined}")
    async with working(world.agent):
        vmi = a_blank_vmi()
        await world.make(vmi, requests={"memory": "8Mi"}, limits={"memory": "8Mi"})
        await world.until("failed", lambda: world.pod_phase() == "Failed")
        assert world.container()["state"]["terminated"]["reason"] == "OOMKilled"
        assert world.container()["state"]["terminated"]["exitCode"] == 137


@pytest.mark.long
@pytest.mark.skipif(not GUEST.exists(), reason="the test guest has not been built")
async def test_a_guest_boots_is_paused_outlives_its_agent_and_powers_off(
    world: World, root: Path, images: Path
) -> None:
    endpoints = GuestEndpoints([world.agent])
    before = world.store.revision
    async with working(world.agent):
        await running(world, a_vmi())
        await world.until("the agent", lambda: world.condition("AgentConnected"), 120)
        await world.until("an address", lambda: address(world).startswith("10."))
        told = [name for name in await written(world, before) if name not in OF_THE_NODE]
        assert len(told) < 20, told
        status = world.vmi()["status"]
        assert status["guestOSInfo"]["id"] == "livevirt-guest"
        assert status["memory"]["guestCurrent"] == "256Mi"
        assert {each["name"]: each["target"] for each in status["volumeStatus"]} == {
            "root": "vda",
            "scratch": "vdb",
            "cloud": "vdc",
        }
        assert parse(await world.run("cat /sys/block/vdb/size")).value() * 512 == 64 << 20
        waiting = "until [ -e /run/cloud-init/done ]; do sleep 0.1; done; cat /tmp/greeting"
        assert await world.run(waiting) == "hello"
        assert qemu_user(root) != "0" or os.geteuid() != 0

        await endpoints.pause(SPACE, "web")
        await world.until("paused", lambda: world.condition("Paused"))
        assert world.condition("Paused")["reason"] == "PausedByUser"
        await world.until("unready", lambda: not ready(world))
        await endpoints.unpause(SPACE, "web")
        await world.until("unpaused", lambda: not world.condition("Paused"))
        await world.until("ready", lambda: ready(world))
        assert (await endpoints.exec(SPACE, "web", ["/bin/echo", "hi"], b"")).stdout == b"hi\n"
        told = await endpoints.guest_os_info(SPACE, "web")
        assert (told["hostname"], told["os"]["id"]) == ("web", "livevirt-guest")
        assert told["guestAgentVersion"]
        assert (await endpoints.user_list(SPACE, "web"))["items"] == told["userList"]
        mounted = (await endpoints.filesystem_list(SPACE, "web"))["items"]
        assert points(mounted) == points(told["fsInfo"]["disks"])
        console = await endpoints.console_socket(SPACE, "web")
        assert console.is_socket()
        log = await endpoints.log_file(SPACE, world.pod()["metadata"]["name"], "guest-console-log")
        uptime = float(await world.run(UPTIME))

    assert len(qemus(root)) == 1
    agent = node_world.an_agent(world.client, root, images)
    world.agent = agent
    async with working(agent):
        await eventually("adopted", lambda: answers(world))
        assert float(await world.run(UPTIME)) > uptime
        await eventually("the prompt", lambda: b"login: " in log.read_bytes())
        shutting = asyncio.create_task(world.run("poweroff -f || poweroff"))
        await eventually("it shut down", lambda: not qemus(root))
        began = time.monotonic()
        await world.until("VMI ended", lambda: world.phase() == "Succeeded")
        await world.until("pod ended", lambda: world.pod_phase() == "Succeeded")
        assert time.monotonic() - began < SOON
        await asyncio.wait([shutting])
        shutting.exception()
        assert leftovers(root) == []
        assert log.exists()  # until the pod goes
        await world.client.delete(core.POD, world.pod()["metadata"]["name"], SPACE)
        await eventually("no files", lambda: not files(root))


async def written(world: World, since: int) -> list[str]:
    """List what was written since a revision, by resource."""
    found: list[Any] = []
    watch = world.store.watch(None, since=since)
    while len(found) < world.store.revision - since:
        found += await anext(watch)
    watch.close()
    return [event.key.resource for event in found]


def points(filesystems: list[Object]) -> list[str]:
    return [each["mountPoint"] for each in filesystems]


def answers(world: World) -> bool:
    guest = world.agent.guest(SPACE, "web")
    return guest is not None and guest.view.agent is not None


def address(world: World) -> str:
    cards = world.vmi()["status"].get("interfaces") or [{}]
    return str(cards[0].get("ipAddress", ""))


def ready(world: World) -> bool:
    found = {each["type"]: each["status"] for each in world.pod()["status"]["conditions"]}
    return found["Ready"] == "True"


def qemu_user(root: Path) -> str:
    (pid,) = qemus(root)
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Uid:"))


async def test_given_the_agent_is_killed_then_the_next_one_finds_its_guest(
    root: Path, images: Path
) -> None:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, node_world.__file__, str(root), str(images), "one"),
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"running\n"
    child.kill()
    await child.wait()
    (pid,) = qemus(root)
    async with opened(root, images) as world:
        async with working(world.agent):
            await eventually("adopted", lambda: world.agent.guest(SPACE, "web"))
            assert world.agent.guest(SPACE, "web").process.pid == pid  # type: ignore[union-attr]
            assert qemus(root) == [pid]
            assert world.phase() == "Running"
        os.kill(pid, signal.SIGKILL)  # while nobody looks
        async with working(node_world.an_agent(world.client, root, images)):
            await world.until("failed", lambda: world.phase() == "Failed", SOON)
            await world.until("pod failed", lambda: world.pod_phase() == "Failed", SOON)
            await eventually("nothing left", lambda: not leftovers(root))
    assert leftovers(root) == []
