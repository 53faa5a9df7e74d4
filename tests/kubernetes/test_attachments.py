"""Claims that are plugged into a running guest on a real cluster, by attachment pods."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livevirt.vm.volumes.attachment_pods import SELECTOR

from .cluster import ROOT, KubernetesCluster, eventually, running_cluster, tool
from .component import NAMESPACE, livevirt
from .launcher_pods import load_livevirt
from .test_cluster import load_module

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.guest,
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root for their namespaces"),
]
NODE = "node-1"
GUEST, DISK = "localhost/guest:1", ROOT / ".cache" / "guest" / "guest.qcow2"
EMULATE = {"spec": {"configuration": {"developerConfiguration": {"useEmulation": True}}}}
START = 240.0


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A block device of this machine."""
    image = tmp_path_factory.mktemp("block") / "image"
    image.write_bytes(b"\0" * (64 << 20))
    command = ["losetup", "--find", "--show", str(image)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no loop devices: {done.stderr}")
    yield done.stdout.strip()
    subprocess.run(["losetup", "--detach", done.stdout.strip()], check=False)


@pytest.fixture(scope="module")
def cluster(device: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """A cluster of one node with livevirt, claims of both modes and a guest that runs."""
    if not DISK.exists():
        pytest.skip("the test guest is not built: make setup")
    image = load_module(ROOT / "tools" / "kubernetes" / "image.py")
    archive = tmp_path_factory.mktemp("guest") / "guest.tar"
    image.write_archive(archive, [image.Image(GUEST, {"disk/guest.qcow2": DISK})])
    with running_cluster(f"attach-{os.getpid()}", "--nodes", "1") as started:
        load_livevirt(started)
        loaded = tool("load-image", str(archive), "--name", started.name)
        assert loaded.returncode == 0, loaded.stderr
        done = livevirt(started.kubeconfig, "install", "--replicas", "1", "--timeout", "200")
        assert done.returncode == 0, done.stderr
        patch = ("patch", "kubevirt", "kubevirt", "-n", NAMESPACE, "--type=merge")
        started.kubectl(*patch, "-p", json.dumps(EMULATE))
        started.apply(*claims(device), a_vm())
        assert eventually(lambda: phase(started) == "Running", START), described(started)
        yield started


def claims(device: str) -> list[dict[str, Any]]:
    """Return a claim of each volume mode, and the volume of the block device."""
    terms = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}
    modes: dict[str, Any] = {"accessModes": ["ReadWriteOnce"]}
    size = {"resources": {"requests": {"storage": "64Mi"}}}
    block = {**modes, "volumeMode": "Block", "storageClassName": "none"}
    volume = {**block, "capacity": {"storage": "64Mi"}, "local": {"path": device}}
    found = [
        ("PersistentVolume", "blocks", {**volume, "nodeAffinity": affinity}),
        ("PersistentVolumeClaim", "blocks", {**block, **size}),
        ("PersistentVolumeClaim", "files", {**modes, **size}),
    ]
    return [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        for kind, name, spec in found
    ]


def a_vm() -> dict[str, Any]:
    domain = {
        "cpu": {"sockets": 1},
        "memory": {"guest": "256Mi"},
        "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
        "resources": {"requests": {"cpu": "500m"}},
    }
    root = {"name": "root", "containerDisk": {"image": GUEST, "imagePullPolicy": "Never"}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "web"},
        "spec": {
            "runStrategy": "Always",
            "template": {"spec": {"domain": domain, "volumes": [root]}},
        },
    }


def phase(cluster: KubernetesCluster) -> str:
    found = cluster.run_kubectl("get", "vmi", "web", "-o", "jsonpath={.status.phase}")
    return found.stdout


def described(cluster: KubernetesCluster) -> str:
    agent = cluster.run_kubectl("-n", NAMESPACE, "logs", "daemonset/livevirt-node", "--tail=30")
    objects = cluster.run_kubectl("get", "vmi,pods", "-o", "yaml")
    return agent.stdout + objects.stdout


def have(cluster: KubernetesCluster, *names: str) -> None:
    """Let the VM have claims as hotpluggable volumes of the same name."""
    vm = a_vm()
    spec = vm["spec"]["template"]["spec"]
    for name in names:
        spec["domain"]["devices"]["disks"].append({"name": name, "disk": {"bus": "scsi"}})
        source = {"claimName": name, "hotpluggable": True}
        spec["volumes"].append({"name": name, "persistentVolumeClaim": source})
    cluster.apply(vm)


def attached(cluster: KubernetesCluster) -> dict[str, str]:
    """Return the phase of every volume that is plugged."""
    status = cluster.get("vmi", "web")["status"]
    listed = status.get("volumeStatus") or ()
    return {each["name"]: each["phase"] for each in listed if "hotplugVolume" in each}


def pods(cluster: KubernetesCluster) -> list[str]:
    return cluster.kubectl("get", "pods", "-l", SELECTOR, "-o", "name").split()


def test_given_claims_of_both_modes_then_they_are_plugged_and_unplugged_and_plugged_again(
    cluster: KubernetesCluster, device: str
) -> None:
    launcher = cluster.get("pods", "-l", "kubevirt.io=virt-launcher")["items"][0]["metadata"]
    both = {"files": "Ready", "blocks": "Ready"}
    for _ in range(2):
        have(cluster, "files", "blocks")
        assert eventually(lambda: attached(cluster) == both), described(cluster)
        assert len(pods(cluster)) == 2
        holders = holders_of(device)
        assert any("qemu" in each for each in holders), holders
        have(cluster)
        assert eventually(lambda: not attached(cluster)), described(cluster)
        assert eventually(lambda: not pods(cluster)), described(cluster)
        assert not any("qemu" in each for each in holders_of(device))
    same = cluster.get("pods", "-l", "kubevirt.io=virt-launcher")["items"][0]["metadata"]
    assert same["uid"] == launcher["uid"]


def holders_of(device: str) -> list[str]:
    """Return the names of the processes that have a device open."""
    number = os.stat(device).st_rdev
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            about = os.stat(link)
            if about.st_rdev == number:
                found.append((link.parents[1] / "comm").read_text().strip())
        except OSError:
            continue  # it has ended
    return found


def test_given_a_disk_in_use_then_its_pod_is_neither_deleted_nor_evicted(
    cluster: KubernetesCluster,
) -> None:
    have(cluster, "files")
    assert eventually(lambda: attached(cluster) == {"files": "Ready"}), described(cluster)
    [pod] = pods(cluster)
    assert cluster.run_kubectl("delete", pod, "--wait=false").returncode != 0
    name = pod.removeprefix("pod/")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/default/pods/{name}/eviction"
    evicted = cluster.run_kubectl("create", "--raw", path, "-f", "-", text=json.dumps(eviction))
    assert evicted.returncode != 0
    assert pods(cluster) == [pod]
    assert attached(cluster) == {"files": "Ready"}


def test_given_the_guest_ends_then_so_do_its_attachment_pods(cluster: KubernetesCluster) -> None:
    assert pods(cluster)
    stop = '{"spec":{"runStrategy":"Halted"}}'
    cluster.kubectl("patch", "vm", "web", "--type=merge", "-p", stop)
    assert eventually(lambda: not pods(cluster), 120), described(cluster)
