"""Replicas that are killed or suspended, and an API server that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from livevirt.errors import NotFound
from livevirt.kube.client.limits import COMPONENT
from livevirt.kube.objects import core
from livevirt.vm import kinds

from .cluster import KubernetesCluster, eventually, tool
from .controller_process import (
    Replica,
    Write,
    holder,
    request_count,
    running_replica,
    writes,
)
from .played_handler import World, a_vm, playing

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root for their namespaces"),
]
TAKEOVER_SECONDS = 20
_numbers = itertools.count(1)
ETCD_SECONDS = 30.0


@pytest.fixture
async def world(controlled: KubernetesCluster) -> AsyncIterator[World]:
    """A namespace of its own, in which guests are played."""
    async with playing(controlled, f"faults-{next(_numbers)}") as started:
        yield started


def created_twice(cluster: KubernetesCluster, namespace: str) -> list[tuple[str, str]]:
    """Return the instances and pods that were created more than once."""
    found = Counter(
        (write.resource, write.key[1])
        for write in writes(cluster)
        if write.verb == "create" and write.done and write.key[0] == namespace
        if write.resource in ("pods", "virtualmachineinstances")
    )
    return [key for key, number in found.items() if number > 1]


def writes_of(cluster: KubernetesCluster, replica: str) -> list[Write]:
    return [each for each in writes(cluster) if each.replica == replica]


@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.soak)])
async def test_given_two_replicas_when_the_leader_is_killed_then_the_other_takes_over(
    controlled: KubernetesCluster, world: World, tmp_path: Path, kills: int
) -> None:
    with contextlib.ExitStack() as running:
        replicas = [
            running.enter_context(running_replica(controlled, tmp_path, f"replica-{number}"))
            for number in range(2)
        ]
        taken = []
        for kill in range(kills):
            taken.append(await take_over(controlled, world, replicas, f"round-{kill}"))
            name = f"replica-{kill + 2}"
            replicas.append(running.enter_context(running_replica(controlled, tmp_path, name)))
        print(f"taken over {[round(seconds, 1) for seconds in taken]} s after the kills")
        assert max(taken) < TAKEOVER_SECONDS
        assert created_twice(controlled, world.namespace) == []
        done = {write.replica for write in writes(controlled) if write.key[0] == world.namespace}
        assert len(done) > 1, "the kill was to be in the middle of the work"


async def take_over(
    cluster: KubernetesCluster, world: World, replicas: list[Replica], prefix: str
) -> float:
    """Kill the leader while it starts VMs; return the seconds until another leads."""
    identities = [each.identity for each in replicas]
    await until(lambda: holder(cluster) in identities)
    leader = replicas.pop(identities.index(holder(cluster)))
    [other] = replicas
    await until(lambda: other.get("/readyz")[0] == 200)
    names = [f"{prefix}-vm-{number}" for number in range(10)]
    for name in names:
        await world.create(a_vm(name))
    await world.until(lambda: any(map(world.vmi, names)))
    leader.signal(signal.SIGKILL)  # some of the VMs have an instance, some a pod
    killed = time.monotonic()
    await until(lambda: holder(cluster) == other.identity)
    seconds = time.monotonic() - killed
    await world.until_running(*names)
    assert len(world.pods()) == len(names)
    for name in names:
        await world.client.delete(kinds.VM, name, world.namespace)
    await world.until(lambda: not world.pods())
    return seconds


async def test_given_a_leader_that_is_stopped_then_the_other_takes_over_at_once(
    controlled: KubernetesCluster, world: World, tmp_path: Path
) -> None:
    with running_replica(controlled, tmp_path, "stopped") as one:
        await until(lambda: holder(controlled) == one.identity)
        with running_replica(controlled, tmp_path, "waiting") as two:
            await until(lambda: two.get("/readyz")[0] == 200)
            one.signal(signal.SIGTERM)
            assert await asyncio.to_thread(one.wait) == 0
            await until(lambda: holder(controlled) == two.identity, 10)


async def test_given_a_suspended_leader_when_it_continues_then_it_writes_nothing_and_exits(
    controlled: KubernetesCluster, world: World, tmp_path: Path
) -> None:
    with running_replica(controlled, tmp_path, "suspended") as one:
        await until(lambda: holder(controlled) == one.identity)
        await world.create(a_vm("before"))
        await world.until_running("before")
        one.signal(signal.SIGSTOP)
        for number in range(3):  # what it finds in its watches when it continues
            await world.create(a_vm(f"after-{number}"))
        with running_replica(controlled, tmp_path, "successor") as two:
            await until(lambda: holder(controlled) == two.identity)
            await world.until_running(*(f"after-{number}" for number in range(3)))
            known = len(writes_of(controlled, "suspended"))
            one.signal(signal.SIGCONT)
            assert await asyncio.to_thread(one.wait) == 1
            assert len(writes_of(controlled, "suspended")) == known
            assert holder(controlled) == two.identity
            assert created_twice(controlled, world.namespace) == []


async def test_given_the_api_server_restarts_then_the_controllers_go_on(
    controlled: KubernetesCluster, world: World, tmp_path: Path
) -> None:
    with (
        running_replica(controlled, tmp_path, "restarted") as one,
        running_replica(controlled, tmp_path, "standby") as two,
    ):
        identities = (one.identity, two.identity)
        await until(lambda: holder(controlled) in identities)
        await world.create(a_vm("before"))
        await world.until_running("before")
        sent, began = request_count(controlled), time.monotonic()
        await api_server(controlled, "stop", "--signal", "KILL")
        await api_server(controlled, "start")
        await world.create(a_vm("after"))
        await world.until_running("before", "after")
        requests, seconds = request_count(controlled) - sent, time.monotonic() - began
        print(f"{requests} requests in {seconds:.1f} s around the restart")
        assert requests / seconds < COMPONENT.qps
        assert holder(controlled) in identities
        assert created_twice(controlled, world.namespace) == []


async def test_given_the_api_server_is_away_for_too_long_then_the_leader_exits(
    controlled: KubernetesCluster, world: World, tmp_path: Path
) -> None:
    with running_replica(controlled, tmp_path, "cut-off") as one:
        await until(lambda: holder(controlled) == one.identity)
        await api_server(controlled, "stop", "--signal", "STOP")
        try:
            assert await asyncio.to_thread(one.wait) == 1
        finally:
            await api_server(controlled, "stop", "--signal", "CONT")
    with running_replica(controlled, tmp_path, "next") as two:
        await until(lambda: holder(controlled) == two.identity)
        await world.create(a_vm("web"))
        await world.until_running("web")


async def test_given_etcd_stops_for_half_a_minute_then_a_standby_leads_and_nothing_is_lost(
    controlled: KubernetesCluster, world: World, tmp_path: Path
) -> None:
    with running_replica(controlled, tmp_path, "before-outage") as one:
        await until(lambda: holder(controlled) == one.identity)
        await world.create(a_vm("before"))
        await world.until_running("before")
        with running_replica(controlled, tmp_path, "after-outage") as two:
            await until(lambda: two.get("/readyz")[0] == 200)
            sent, began = request_count(controlled), time.monotonic()
            await component(controlled, "etcd", "stop")
            await asyncio.sleep(ETCD_SECONDS)
            await component(controlled, "etcd", "start")
            assert await asyncio.to_thread(one.wait) == 1  # it could not renew its lease
            await until(lambda: holder(controlled) == two.identity)
            await world.create(a_vm("after"))
            await world.until_running("before", "after")
            requests, seconds = request_count(controlled) - sent, time.monotonic() - began
            print(f"{requests} requests in {seconds:.1f} s around the outage")
            assert requests / seconds < COMPONENT.qps
            assert created_twice(controlled, world.namespace) == []


async def test_given_a_second_writer_of_every_object_then_vms_start_and_grow_all_the_same(
    controlled: KubernetesCluster, world: World, tmp_path: Path
) -> None:
    names = [f"vm-{number}" for number in range(3)]
    with running_replica(controlled, tmp_path, "contested") as one:
        await until(lambda: holder(controlled) == one.identity)
        before, began = request_count(controlled), time.monotonic()
        editing = asyncio.create_task(edit_all(world, names))
        try:
            for name in names:
                await world.create(a_vm(name))
            await world.until_running(*names)
            for name in names:
                await world.resize(name, cpu={"sockets": 2})
            await world.until(lambda: all(sockets(world, name) == 2 for name in names))
            assert not editing.done(), "it was to edit all the time"
        finally:
            editing.cancel()
            await asyncio.wait({editing})
        requests, seconds = request_count(controlled) - before, time.monotonic() - began
        print(f"{requests} requests in {seconds:.1f} s beside a second writer")
        assert requests / seconds < COMPONENT.qps
        assert created_twice(controlled, world.namespace) == []


def sockets(world: World, name: str) -> int:
    """Return the sockets that the guest has."""
    topology = world.vmi(name)["status"].get("currentCPUTopology") or {}
    return int(topology.get("sockets", 0))


async def edit_all(world: World, names: list[str]) -> None:
    """Edit an annotation of each VM, instance and pod, again and again."""
    for number in itertools.count():
        patch = {"metadata": {"annotations": {"example.com/edited": str(number)}}}
        targets = [(kind, name) for name in names for kind in (kinds.VM, kinds.VMI)]
        targets += [(core.POD, pod["metadata"]["name"]) for pod in world.pods()]
        for kind, name in targets:
            with contextlib.suppress(NotFound):
                await world.client.patch(kind, name, world.namespace, patch)


async def api_server(cluster: KubernetesCluster, command: str, *options: str) -> None:
    """Stop or start the API server of a cluster."""
    await component(cluster, "kube-apiserver", command, *options)


async def component(cluster: KubernetesCluster, name: str, command: str, *options: str) -> None:
    """Stop or start a component of a cluster."""
    arguments = (command, "--name", cluster.name, *options, name)
    done = await asyncio.to_thread(tool, *arguments)
    assert done.returncode == 0, done.stderr


async def until(fact: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for a fact that takes a command to find out, while guests are played."""
    assert await asyncio.to_thread(eventually, fact, seconds)
