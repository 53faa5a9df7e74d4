"""The controllers of virtual machines on a real API server, up to the pods of the guests."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vmi.launcher import CONTAINER

from .cluster import ROOT, KubernetesCluster, eventually
from .controller_process import (
    Replica,
    denied,
    has_precondition,
    holder,
    running_replica,
    writes,
)
from .played_handler import World, a_vm, playing
from .webhook_process import ENVIRONMENT

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root for their namespaces"),
]
PAGE = ROOT / "docs" / "kubernetes.md"
DRAIN = "kubevirt.io/drain"
_numbers = count(1)


@pytest.fixture(scope="module")
def replica(
    controlled: KubernetesCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replica]:
    """A replica that leads."""
    with running_replica(controlled, tmp_path_factory.mktemp("controller")) as started:
        assert eventually(lambda: holder(controlled) == started.identity)
        yield started


@pytest.fixture
async def world(controlled: KubernetesCluster, replica: Replica) -> AsyncIterator[World]:
    """A namespace of its own, in which guests are played."""
    async with playing(controlled, f"controller-{next(_numbers)}") as started:
        yield started
        await started.remove_all()  # or their end would disturb the next test
    assert replica.process.poll() is None, "the controllers must not end by themselves"


def requested(pod: Object, resource: str) -> str:
    found = next(each for each in pod["spec"]["containers"] if each["name"] == CONTAINER)
    return str(found["resources"]["requests"][resource])


async def test_given_a_vm_then_it_has_an_instance_and_a_pod_until_it_is_deleted(
    world: World,
) -> None:
    await world.create(a_vm("web"))
    await world.until_running("web")
    [pod] = world.pods()
    [owner] = pod["metadata"]["ownerReferences"]
    assert owner["uid"] == world.vmi()["metadata"]["uid"]
    assert world.vmi()["metadata"]["ownerReferences"][0]["uid"] == world.vm()["metadata"]["uid"]
    await world.client.delete(kinds.VM, "web", world.namespace, propagation="Foreground")
    await world.until(lambda: not world.vm() and not world.vmi() and not world.pods())


RESTARTED = {"Always": True, "RerunOnFailure": True, "Manual": False, "Once": False}


@pytest.mark.parametrize("strategy", RESTARTED)
async def test_given_a_run_strategy_when_the_guest_fails_then_it_is_started_again_or_not(
    world: World, strategy: str
) -> None:
    await world.create(a_vm("web", strategy))
    if strategy == "Manual":
        await world.until(lambda: world.shown() == "Stopped")
        assert not world.vmi()
        return
    await world.until_running("web")
    first = world.vmi()["metadata"]["uid"]
    await world.end_guest("Failed")
    if RESTARTED[strategy]:
        await world.until(lambda: bool(world.vmi()) and world.vmi()["metadata"]["uid"] != first)
    else:
        await world.until(lambda: world.shown() == "Stopped")
        assert world.vmi()["metadata"]["uid"] == first


async def test_given_a_running_vm_when_it_is_halted_then_its_guest_ends_and_starts_again_later(
    world: World,
) -> None:
    await world.create(a_vm("web"))
    await world.until_running("web")
    await world.edit({"spec": {"runStrategy": "Halted"}})
    await world.until(lambda: world.shown() == "Stopped" and not world.vmi() and not world.pods())
    await world.edit({"spec": {"runStrategy": "Always"}})
    await world.until_running("web")


async def test_given_live_update_when_a_vm_grows_then_its_pod_is_resized_in_place(
    world: World,
) -> None:
    await world.create(a_vm("web"))
    await world.until_running("web")
    [before] = world.pods()
    await world.resize(cpu={"sockets": 2}, memory={"guest": "512Mi"})
    await world.until(
        lambda: bool(world.vmi()["status"].get("observedSizeRevision")) and not world.has("HotVCPU")
    )
    [after] = world.pods()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert requested(after, "cpu") == "200m"
    assert requested(after, "memory") != requested(before, "memory")
    assert world.vmi()["spec"]["domain"]["cpu"]["sockets"] == 2
    assert not world.has("RestartRequired")
    statuses = after["status"]["containerStatuses"]
    assert [each["restartCount"] for each in statuses] == [0] * len(statuses)


async def test_given_a_change_that_is_not_live_then_restart_is_required_until_it_is_reverted(
    world: World,
) -> None:
    await world.create(a_vm("web"))
    await world.until_running("web")
    await world.resize(cpu={"cores": 2})
    await world.until(lambda: world.has("RestartRequired"))
    [pending] = world.vm()["status"]["pendingChanges"]
    assert pending["path"].endswith("cpu.cores")
    await world.resize(cpu={"cores": 1})
    await world.until(lambda: not world.has("RestartRequired"))
    assert not world.vm()["status"].get("pendingChanges")


@pytest.fixture
async def staged(world: World) -> AsyncIterator[World]:
    """A cluster with the rollout strategy Stage."""

    async def roll_out(strategy: str) -> None:
        configuration = {"configuration": {"vmRolloutStrategy": strategy}}
        await world.client.patch(kinds.KUBEVIRT, "kubevirt", "kubevirt", {"spec": configuration})

    await roll_out("Stage")
    yield world
    await roll_out("LiveUpdate")


async def test_given_stage_when_a_vm_grows_then_restart_is_required_and_a_restart_applies_it(
    staged: World,
) -> None:
    world = staged
    await world.create(a_vm("web"))
    await world.until_running("web")
    await world.resize(cpu={"sockets": 2})
    await world.until(lambda: world.has("RestartRequired"))
    first = world.vmi()
    assert first["spec"]["domain"]["cpu"]["sockets"] == 1
    await world.client.delete(kinds.VMI, "web", world.namespace, uid=first["metadata"]["uid"])
    await world.until(
        lambda: (
            world.phase() == "Running"
            and world.vmi()["metadata"]["uid"] != first["metadata"]["uid"]
        )
    )
    assert world.vmi()["spec"]["domain"]["cpu"]["sockets"] == 2
    await world.until(lambda: not world.has("RestartRequired"))


def an_instancetype(name: str, cpus: int, memory: str) -> Object:
    return {
        "apiVersion": kinds.INSTANCETYPE.api_version,
        "kind": kinds.INSTANCETYPE.kind,
        "metadata": {"name": name},
        "spec": {
            "cpu": {"guest": cpus, "maxSockets": 4},
            "memory": {"guest": memory, "maxGuest": "1Gi"},
        },
    }


async def test_given_an_instance_type_when_the_vm_switches_then_the_guest_follows(
    world: World,
) -> None:
    for each in (an_instancetype("small", 1, "256Mi"), an_instancetype("large", 2, "512Mi")):
        await world.client.create(kinds.INSTANCETYPE, each, world.namespace)
    vm = a_vm("web", cpu=None, memory=None)
    vm["spec"]["instancetype"] = {"kind": kinds.INSTANCETYPE.kind, "name": "small"}
    await world.create(vm)
    await world.until_running("web")
    [before] = world.pods()
    await world.edit({"spec": {"instancetype": {"name": "large"}}})
    await world.until(lambda: bool(world.vmi()["status"].get("observedSizeRevision")))
    [after] = world.pods()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert world.vmi()["spec"]["domain"]["cpu"]["sockets"] == 2
    assert world.vmi()["spec"]["domain"]["memory"]["guest"] == "512Mi"
    assert not world.has("RestartRequired")


async def test_given_a_node_that_is_drained_then_its_guest_is_to_move_to_the_other(
    controlled: KubernetesCluster, world: World
) -> None:
    vm = a_vm("web")
    vm["spec"]["template"]["spec"]["evictionStrategy"] = "LiveMigrate"
    await world.create(vm)
    await world.until_running("web")
    [source] = world.pods()
    node = source["spec"]["nodeName"]
    controlled.kubectl("taint", "node", node, f"{DRAIN}=:NoSchedule")
    try:
        await world.until(lambda: world.vmi()["status"].get("migrationState") is not None)
    finally:
        controlled.kubectl("taint", "node", node, f"{DRAIN}-")
    [target] = [pod for pod in world.pods() if pod["metadata"]["uid"] != source["metadata"]["uid"]]
    assert target["spec"]["nodeName"] != node
    [migration] = (await world.client.list(kinds.MIGRATION, world.namespace)).items
    assert migration["metadata"]["name"].startswith("kubevirt-evacuation-")
    state = world.vmi()["status"]["migrationState"]
    assert (state["sourceNode"], state["targetNode"]) == (node, target["spec"]["nodeName"])


def test_given_the_page_then_its_commands_start_a_replica(
    controlled: KubernetesCluster, replica: Replica, tmp_path: Path
) -> None:
    section = PAGE.read_text().split("\n## Controllers\n")[1].split("\n## ")[0]
    [block] = re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    prepare, start = block.splitlines()
    programs = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    env = {**ENVIRONMENT, "PATH": programs, "KUBECONFIG": controlled.kubeconfig}
    shell = ["bash", "-euo", "pipefail", "-c"]
    subprocess.run([*shell, prepare], env=env, check=True, timeout=120)
    log = tmp_path / "log"
    command = start.replace(":8080", ":0")  # the port may be in use on this machine
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*shell, f"exec {command}"], env=env, stdout=output, stderr=output
        )
    try:
        assert eventually(lambda: "ready: http" in log.read_text()), log.read_text()
    finally:
        process.terminate()
    assert process.wait(30) == 0


async def test_given_a_replica_then_its_endpoints_answer(replica: Replica) -> None:
    assert replica.get("/healthz") == (200, "ok")
    assert eventually(lambda: replica.get("/readyz") == (200, "ok"))
    assert 'livevirt_leader{component="livevirt-controller"} 1\n' in replica.get("/metrics")[1]
    components = {component for component, *_ in replica.requests()}
    assert "virtualmachine-controller" in components


async def test_given_a_steady_cluster_then_nothing_is_written_for_20_seconds(
    controlled: KubernetesCluster, world: World, replica: Replica
) -> None:
    names = [f"vm-{number}" for number in range(5)]
    before = replica.requests()
    for name in names:
        await world.create(a_vm(name))
    await world.until_running(*names)
    await world.until(lambda: all(world.shown(name) in ("Running", "Starting") for name in names))
    print_requests("five starts", before, replica.requests())
    await settled(controlled)
    known, start = len(writes(controlled)), replica.requests()
    await asyncio.sleep(20)
    assert writes(controlled)[known:] == []
    print_requests("20 seconds without a change", start, replica.requests())


async def settled(cluster: KubernetesCluster) -> None:
    """Wait until nothing was written for ten seconds, longer than any wait of a controller."""
    known = -1
    async with asyncio.timeout(120):
        while (now := len(writes(cluster))) != known:
            known = now
            await asyncio.sleep(10)


def print_requests(
    title: str,
    before: dict[tuple[str, str, str, str], int],
    after: dict[tuple[str, str, str, str], int],
) -> None:
    counts = {key: number - before.get(key, 0) for key, number in after.items()}
    print(f"{title}: {sum(counts.values())} requests")
    for key, number in sorted(counts.items()):
        if number:
            print(f"  {number:4} {' '.join(key)}")


def test_given_all_requests_so_far_then_roles_allow_them_and_writes_have_preconditions(
    controlled: KubernetesCluster, replica: Replica
) -> None:
    found = [each for each in writes(controlled) if not each.resource.startswith("events")]
    assert {each.resource for each in found} >= {"pods", "pods/resize", "virtualmachineinstances"}
    assert [each for each in found if not has_precondition(each)] == []
    assert denied(controlled) == []
    resizes = [each for each in found if each.resource == "pods/resize"]
    assert any(each.done for each in resizes), "the API server accepted no resize"
