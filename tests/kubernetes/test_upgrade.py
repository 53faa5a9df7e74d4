"""Upgrade of the components and back while VMs exist: nothing restarts and no write is refused."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from livevirt.cluster.manifests import VERSION
from livevirt.errors import LivevirtError
from livevirt.kube.client import kubeconfig
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.objects.pod_resources import YES
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.spec.placement_validation import MACHINE_TYPE

from .cluster import TOOL, KubernetesCluster, running_cluster
from .played_handler import World, a_vm, playing
from .releases import CURRENT, Release, load_current, load_older

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root for their namespaces"),
]
OLD, NEW = "v1beta1", "v1beta2"
PATIENCE = 120.0  # seconds; another replica leads 20 s after a leader that was killed
READ_ETCD = """
import sys, urllib.request
url = "http://127.0.0.1:2379/v3/kv/range"
print(urllib.request.urlopen(url, sys.argv[1].encode(), timeout=30).read().decode())
"""
NODE_AGENT = "system:serviceaccount:kubevirt:livevirt-node"


@dataclass(frozen=True)
class Installation:
    """A cluster with two releases of which one is installed."""

    cluster: KubernetesCluster
    older: Release


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The older release on one real node; the hollow one takes the pods of guests only."""
    name = f"upgrade-{os.getpid()}"
    with running_cluster(name, "--nodes", "1", "--hollow", "1") as cluster:
        labels = ("kubevirt.io/schedulable=true", f"{MACHINE_TYPE}q35={YES}")
        cluster.kubectl("label", "node", "hollow-1", *labels)
        cluster.kubectl("label", "node", "hollow-1", "--overwrite", "kubernetes.io/os=none")
        load_current(cluster)
        older = load_older(cluster, tmp_path_factory.mktemp("older"))
        older.install(cluster)
        cluster.apply(an_instancetype(OLD, "small"), an_instancetype(NEW, "large"))
        yield Installation(cluster, older)


def an_instancetype(version: str, name: str) -> Object:
    return {
        "apiVersion": f"instancetype.kubevirt.io/{version}",
        "kind": kinds.INSTANCETYPE.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"cpu": {"guest": 1}, "memory": {"guest": "256Mi"}},
    }


@pytest.fixture
async def world(installation: Installation, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A namespace with two VMs whose guests are played."""
    namespace = f"upgrade-{abs(hash(request.node.name)) % 10000}"
    async with playing(installation.cluster, namespace, user=NODE_AGENT) as started:
        for name in ("web", "db"):
            await started.create(a_vm(name))
        await started.until_running("web", "db")
        yield started
        await started.remove_all()


@dataclass
class Writer:
    """Sends what every component has to answer, one request after the other."""

    client: RemoteClient
    count: int = 0
    failures: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Send until cancelled."""
        path = f"/apis/instancetype.kubevirt.io/{{}}/namespaces/default/{kinds.INSTANCETYPE.plural}"
        while True:
            try:
                await self.client.create(kinds.VM, a_vm("refused"), "default", dry_run=True)
                for version in (OLD, NEW):  # the conversion of one of them
                    await self.client.raw("GET", path.format(version))
            except (LivevirtError, TimeoutError) as error:
                self.failures.append(repr(error))
            self.count += 1
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def writing(cluster: KubernetesCluster) -> AsyncIterator[Writer]:
    """Send requests all the time while the block runs."""
    writer = Writer(RemoteClient(kubeconfig.find(cluster.kubeconfig), manager="writer"))
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()
        await asyncio.wait({task})
        await writer.client.close()


def identities(cluster: KubernetesCluster) -> dict[str, Any]:
    """Return the uid and generation of all objects that an upgrade must leave as they are."""
    found = cluster.get("vm,vmi,vminstancetype,kubevirt", "-A")["items"]
    found += cluster.get("pods", "-A", "-l", "kubevirt.io=virt-launcher")["items"]
    return {
        f"{each['kind']}/{each['metadata']['namespace']}/{each['metadata']['name']}": (
            each["metadata"]["uid"], each["metadata"].get("generation"),
            each.get("status", {}).get("containerStatuses", [{}])[0].get("restartCount"),
        )
        for each in found
    }  # fmt: skip


def stored(cluster: KubernetesCluster, name: str) -> str:
    """Return the version in which etcd has an instance type."""
    key = f"/registry/instancetype.kubevirt.io/{kinds.INSTANCETYPE.plural}/default/{name}"
    body = json.dumps({"key": base64.b64encode(key.encode()).decode()})
    done = subprocess.run(
        [TOOL, "exec", "--name", cluster.name, "--", sys.executable, "-c", READ_ETCD, body],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    [found] = json.loads(done.stdout)["kvs"]
    obj = json.loads(base64.b64decode(found["value"]))
    return str(obj["apiVersion"]).rpartition("/")[2]


def stored_versions(cluster: KubernetesCluster) -> list[str]:
    return list(cluster.get("crd", kinds.INSTANCETYPE.resource)["status"]["storedVersions"])


def test_given_the_older_release_then_it_stores_the_older_version(
    installation: Installation,
) -> None:
    assert [stored(installation.cluster, name) for name in ("small", "large")] == [OLD, OLD]
    assert stored_versions(installation.cluster) == [OLD]


@pytest.mark.parametrize(("to", "version"), [("current", NEW), ("older", OLD)])
async def test_given_vms_when_the_release_changes_then_nothing_restarts_and_no_write_fails(
    installation: Installation, world: World, to: str, version: str
) -> None:
    cluster = installation.cluster
    release = CURRENT if to == "current" else installation.older
    before = identities(cluster)
    async with writing(cluster) as writer:
        reported = await asyncio.to_thread(release.install, cluster)
        print(reported, f"{writer.count} rounds of requests")
        answered = writer.count
        await world.until(lambda: writer.count > answered + 3, PATIENCE)  # by the new pods
    assert writer.failures == []
    assert identities(cluster) == before
    assert [stored(cluster, name) for name in ("small", "large")] == [version, version]
    assert stored_versions(cluster) == [version]
    deployments = cluster.get("deployment", "-n", "kubevirt")["items"]
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in deployments]
    assert {each[VERSION] for each in labels} == {release.version}
    status = release.livevirt(cluster, "status", "-o", "json")
    assert json.loads(status.stdout)["problems"] == []
    await world.resize(cpu={"sockets": 2})
    await world.until(lambda: world.vmi()["spec"]["domain"]["cpu"]["sockets"] == 2, PATIENCE)
    assert not world.has("RestartRequired")


def test_given_objects_in_another_stored_version_when_only_migrated_then_they_are_rewritten(
    installation: Installation,
) -> None:
    cluster = installation.cluster
    definition = cluster.get("crd", kinds.INSTANCETYPE.resource)
    for each in definition["spec"]["versions"]:
        each["storage"] = each["name"] == NEW
    cluster.kubectl("replace", "-f", "-", text=json.dumps(definition))
    assert stored_versions(cluster) == [OLD, NEW]
    assert stored(cluster, "small") == OLD
    assert installation.older.livevirt(cluster, "status").returncode == 1
    done = installation.older.livevirt(cluster, "install", "--migrate-only")
    assert done.returncode == 0, done.stderr
    assert stored(cluster, "small") == NEW
    assert stored_versions(cluster) == [NEW]
