"""The device plugin with a real kubelet, which is restarted."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import TOOL, KubernetesCluster, a_pod, eventually, tool
from .component import environment

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root for their namespaces"),
]
pytest.importorskip("grpc", reason="grpcio is not installed")

NODE = "node-2"
RESOURCE, DEVICE = "devices.kubevirt.io/tun", "/dev/net/tun"
SCRIPT = """
import asyncio
from pathlib import Path
from livevirt.cluster import device_plugin
devices = device_plugin.usable(device_plugin.DEVICES, kvm=False)
directory = Path("/var/lib/kubelet", device_plugin.DIRECTORY)
asyncio.run(device_plugin.run(devices, directory))
"""


@pytest.fixture
def plugin(cluster: KubernetesCluster, tmp_path: Path) -> Iterator[None]:
    """The device plugin in the mount namespace of a node."""
    if not Path(DEVICE).exists():
        pytest.skip(f"this machine has no {DEVICE}")
    command = ["exec", "--name", cluster.name, "--node", NODE, "--", sys.executable, "-c", SCRIPT]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([TOOL, *command], stdout=log, stderr=log, env=environment())
        try:
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


def allocatable(cluster: KubernetesCluster) -> dict[str, str]:
    found: dict[str, str] = cluster.get("node", NODE)["status"]["allocatable"]
    return found


def requesting(name: str) -> dict[str, object]:
    """Return a pod that requests the device."""
    pod = a_pod(name, nodeSelector={"kubernetes.io/hostname": NODE})
    resources = pod["spec"]["containers"][0]["resources"]
    resources["limits"][RESOURCE] = resources["requests"][RESOURCE] = "1"
    return pod


def test_given_a_device_then_pods_get_it_also_after_a_restart_of_the_kubelet(
    cluster: KubernetesCluster, plugin: None
) -> None:
    assert eventually(lambda: allocatable(cluster).get(RESOURCE) == "1k"), allocatable(cluster)
    assert "devices.kubevirt.io/kvm" not in allocatable(cluster)  # it was said not to work
    cluster.apply(requesting("first"))
    cluster.wait("pod/first")
    assert "10, 200" in cluster.execute("first", "ls", "-l", DEVICE)
    stopped = tool("stop", "--name", cluster.name, f"kubelet-{NODE}")
    assert stopped.returncode == 0, stopped.stderr
    started = tool("start", "--name", cluster.name, f"kubelet-{NODE}")
    assert started.returncode == 0, started.stderr
    assert eventually(lambda: allocatable(cluster).get(RESOURCE) == "1k")
    cluster.apply(requesting("second"))
    cluster.wait("pod/second")
    first = cluster.get("pod", "first")["status"]["containerStatuses"][0]
    assert first["restartCount"] == 0, json.dumps(first)
    cluster.kubectl("delete", "pod", "first", "second")
