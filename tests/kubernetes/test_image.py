"""The image of `make image` runs unprivileged, with the locked packages and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from livevirt import __version__

from .cluster import ROOT, KubernetesCluster, tool

pytestmark = pytest.mark.kubernetes
IMAGE = f"localhost/livevirt:{__version__}"
ARCHIVE = ROOT / ".cache" / "image" / "livevirt.tar"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture(scope="module")
def archive() -> Path:
    subprocess.run([ROOT / "tools" / "image" / "build.py"], check=True, timeout=900)
    return ARCHIVE


@pytest.fixture(scope="module")
def pod(cluster: KubernetesCluster, archive: Path) -> Iterator[str]:
    """A pod of the image in a namespace that admits restricted pods only."""
    loaded = tool("load-image", str(archive), "--name", cluster.name)
    assert loaded.returncode == 0, loaded.stderr
    cluster.kubectl("create", "namespace", "image")
    level = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", "image", level)
    container = {
        "name": "livevirt",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "100000"],
        "securityContext": RESTRICTED,
    }
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "nodeName": "node-1",
    }
    metadata = {"name": "livevirt", "namespace": "image"}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    cluster.kubectl("wait", "pod/livevirt", "-n", "image", "--for=condition=Ready", "--timeout=90s")
    yield "livevirt"
    cluster.kubectl("delete", "namespace", "image")


def inside(cluster: KubernetesCluster, pod: str, *command: str) -> str:
    return cluster.kubectl("exec", "-n", "image", pod, "--", *command)


def by_normal_name(versions: dict[str, str]) -> dict[str, str]:
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in versions.items()}


def test_livevirt_and_qemu_run_without_privileges(cluster: KubernetesCluster, pod: str) -> None:
    assert inside(cluster, pod, "id", "-u").strip() == "65532"
    assert __version__ in inside(cluster, pod, "livevirt", "--version")
    assert "QEMU emulator" in inside(cluster, pod, "qemu-system-x86_64", "--version")
    assert "qemu-img" in inside(cluster, pod, "qemu-img", "--version")
    inside(cluster, pod, "/usr/libexec/livevirt/launcher", "stop", "/tmp")


def test_its_python_packages_are_those_of_the_lock_file(
    cluster: KubernetesCluster, pod: str
) -> None:
    script = (
        "import importlib.metadata, json;"
        "found = importlib.metadata.distributions();"
        "print(json.dumps({each.name: each.version for each in found}))"
    )
    installed = json.loads(inside(cluster, pod, "/opt/livevirt/bin/python", "-c", script))
    lock = (ROOT / "requirements.lock").read_text()
    locked = dict(re.findall(r"^([a-z0-9._-]+)==([^ \\;]+)", lock, re.MULTILINE))
    assert installed.pop("livevirt") == __version__
    assert by_normal_name(installed) == by_normal_name(locked)


def test_given_nothing_changed_then_it_is_not_built_again(archive: Path) -> None:
    before = archive.stat().st_mtime_ns
    subprocess.run([ROOT / "tools" / "image" / "build.py"], check=True, timeout=60)
    assert archive.stat().st_mtime_ns == before
