"""Launcher pods on a real kubelet, in a namespace that admits restricted pods only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.lifecycle.vmi import kubelet_pod, launcher
from livevirt.vm.lifecycle.vmi.kubelet_pod import Facts
from livevirt.vm.spec.resources import Namespace

from .cluster import ROOT, KubernetesCluster, eventually, tool
from .launcher_pods import IMAGE, NodePod, load_livevirt, qmp
from .test_cluster import load_module

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root for their namespaces"),
]
TEAM = "restricted"
DISK = "localhost/disk:1"
LINK = "/var/run/kubevirt/container-disks/root"
CONTENT = b"a disk of a container image".ljust(1 << 20)
ROOT_DISK = {"name": "root", "containerDisk": {"image": DISK, "imagePullPolicy": "Never"}}


@pytest.fixture(scope="module", autouse=True)
def team(cluster: KubernetesCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The namespace, and the images on the nodes."""
    load_livevirt(cluster)
    folder = tmp_path_factory.mktemp("disk")
    (folder / "disk.img").write_bytes(CONTENT)
    image = load_module(ROOT / "tools" / "kubernetes" / "image.py")
    image.write_archive(
        folder / "disk.tar", [image.Image(DISK, {"disk/disk.img": folder / "disk.img"})]
    )
    loaded = tool("load-image", str(folder / "disk.tar"), "--name", cluster.name)
    assert loaded.returncode == 0, loaded.stderr
    cluster.kubectl("create", "namespace", TEAM)
    level = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", TEAM, level)
    yield
    cluster.kubectl("delete", "namespace", TEAM)


def a_pod(name: str, *volumes: Object, **known: Any) -> Object:
    """Return the launcher pod of an instance, for the first node."""
    amounts = {"cpu": "500m", "memory": "128Mi"}
    resources = {"limits": amounts, "requests": amounts}
    vmi = {
        "metadata": {"name": name, "namespace": TEAM, "uid": f"uid-of-{name}"},
        "spec": {
            "domain": {"devices": {}, "memory": {"guest": "64Mi"}, "resources": resources},
            "volumes": list(volumes),
        },
    }
    facts = Facts(**{"emulation": True, "image_volumes": False, **known})
    pod = kubelet_pod.complete(launcher.pod_of(vmi, Namespace()), vmi, IMAGE, facts)
    del pod["metadata"]["ownerReferences"], pod["metadata"]["generateName"]
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}
    return pod


def start(cluster: KubernetesCluster, pod: Object) -> NodePod:
    cluster.apply(pod)
    found = NodePod(cluster, TEAM, pod["metadata"]["name"])
    assert eventually(found.running), json.dumps(found.get()["status"], indent=1)
    return found


def execute(pod: NodePod, *command: str) -> str:
    words = ("exec", pod.name, "-n", TEAM, "-c", "compute", "--", *command)
    return pod.cluster.kubectl(*words)


def ended(pod: NodePod) -> bool:
    return not pod.cluster.kubectl(
        "get", "pod", pod.name, "-n", TEAM, "--ignore-not-found", "-o", "name"
    )


def test_given_argv_then_the_container_is_qemu_until_it_is_shut_down(
    cluster: KubernetesCluster,
) -> None:
    pod = start(cluster, a_pod("guest", ROOT_DISK))
    run = pod.empty_dir("livevirt-run")
    disk = f"{LINK}/disk/disk.img"
    pod.put_argv(
        "/usr/bin/qemu-system-x86_64", "-display", "none", "-m", "64", "-accel", "tcg",
        "-drive", f"file={disk},format=raw,readonly=on,if=virtio",
        "-qmp", "unix:/run/livevirt/qmp.sock,server=on,wait=off",
        "-serial", "file:/run/livevirt/serial.log",
    )  # fmt: skip
    assert eventually((run / "qmp.sock").exists), pod.get()["status"]
    with qmp(run / "qmp.sock") as command:
        with (run / "serial.log").open("a") as console:
            console.write("hello from the console\n")
        log = ("logs", pod.name, "-n", TEAM, "-c", launcher.CONSOLE_LOG)
        assert eventually(lambda: "hello" in cluster.kubectl(*log))
        assert command("query-status")["running"]
        assert [each["device"] for each in command("query-block") if each.get("inserted")]
        cluster.kubectl("delete", "pod", pod.name, "-n", TEAM, "--wait=false")
        assert eventually((run / "stop").exists)  # made by the preStop hook
        assert command("query-status")["running"]
        command("quit")
    (run / "stopped").touch()
    assert eventually(lambda: ended(pod))


def test_given_a_program_that_fails_then_the_pod_shows_its_status_and_message(
    cluster: KubernetesCluster,
) -> None:
    pod = start(cluster, a_pod("wrong"))
    pod.put_argv("/usr/bin/qemu-system-x86_64", "-machine", "no-such-machine")
    assert eventually(lambda: pod.get()["status"]["phase"] == "Failed")
    [status] = pod.get()["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 1
    assert "qemu-system-x86_64: " in status["state"]["terminated"]["message"]


def test_given_no_argv_then_the_pod_is_deleted_at_once(cluster: KubernetesCluster) -> None:
    pod = start(cluster, a_pod("waiting"))
    cluster.kubectl("delete", "pod", pod.name, "-n", TEAM, "--timeout=20s")


def test_the_container_has_its_disks_and_no_privileges(
    cluster: KubernetesCluster, tmp_path: Path
) -> None:
    cluster.kubectl(
        "create", "secret", "generic", "user", "-n", TEAM, "--from-literal=userdata=#!/bin/sh"
    )
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": TEAM},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    cluster.apply(claim)
    pod = start(
        cluster,
        a_pod(
            "disks",
            ROOT_DISK,
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "user"}}},
        ),
    )
    assert execute(pod, "head", "-c27", f"{LINK}/disk/disk.img") == CONTENT[:27].decode()
    private = "/var/run/kubevirt-private"
    assert execute(pod, "cat", f"{private}/secret/seed/udata/userdata") == "#!/bin/sh"
    assert execute(pod, "ls", "-d", f"{private}/vmi-disks/data").strip()
    execute(pod, "touch", "/var/lib/livevirt/overlay", "/run/livevirt/marker")
    status = execute(pod, "cat", "/proc/self/status")
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    assert fields["Uid"].split()[0] == fields["Gid"].split()[0] == "107"
    assert int(fields["CapBnd"], 16) == 0
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Seccomp"].strip() == "2"
    assert pod.get()["status"]["qosClass"] == "Guaranteed"
    cluster.kubectl("delete", "pod", pod.name, "-n", TEAM, "--timeout=20s")


def test_given_image_volumes_then_the_pod_is_admitted(cluster: KubernetesCluster) -> None:
    pod = a_pod("mounted", ROOT_DISK, image_volumes=True)
    cluster.kubectl("apply", "--dry-run=server", "-f", "-", text=json.dumps(pod))
