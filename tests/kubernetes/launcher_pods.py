"""Launcher pods on real nodes, and what a node agent sees of them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from livevirt import __version__
from livevirt.kube.objects.request import Object

from .cluster import ROOT, KubernetesCluster, eventually, tool

IMAGE = f"localhost/livevirt:{__version__}"
ARCHIVE = ROOT / ".cache" / "image" / "livevirt.tar"


def load_livevirt(cluster: KubernetesCluster) -> None:
    """Build livevirt's image, unless it is up to date, and import it into every node."""
    subprocess.run([ROOT / "tools" / "image" / "build.py"], check=True, timeout=900)
    loaded = tool("load-image", str(ARCHIVE), "--name", cluster.name)
    assert loaded.returncode == 0, loaded.stderr


@dataclass(frozen=True)
class NodePod:
    """A pod as its node sees it."""

    cluster: KubernetesCluster
    namespace: str
    name: str

    def get(self) -> Object:
        """Return the object."""
        found: Object = self.cluster.get("pod", self.name, "-n", self.namespace)
        return found

    def running(self) -> bool:
        """Return whether all its containers run."""
        status = self.get()["status"]
        listed = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
        return bool(status.get("containerStatuses")) and all(
            "running" in each["state"]
            or (each["state"].get("terminated") or {}).get("exitCode") == 0
            for each in listed
        )

    def empty_dir(self, volume: str) -> Path:
        """Return the directory of an emptyDir volume on the node."""
        pod = self.get()
        node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
        kubelet = Path(self.cluster.kubeconfig).parent / "nodes" / node / "kubelet"
        return kubelet / "pods" / uid / "volumes" / "kubernetes.io~empty-dir" / volume

    def put_argv(self, *arguments: str) -> None:
        """Let the pod become a program, as the node agent does."""
        folder = self.empty_dir("livevirt-run")
        unfinished = folder / "argv.part"
        unfinished.write_bytes(b"".join(each.encode() + b"\0" for each in arguments))
        unfinished.rename(folder / "argv")


@contextlib.contextmanager
def qmp(path: Path) -> Iterator[Any]:
    """Connect to a QMP socket; the result performs commands."""
    # The path is longer than a socket's address may be.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            address = f"/proc/self/fd/{folder}/{path.name}"
            assert eventually(lambda: client.connect_ex(address) == 0)
            stream = client.makefile("rw")
            stream.readline()

            def execute(command: str) -> Any:
                stream.write(json.dumps({"execute": command}))
                stream.flush()
                while "return" not in (answer := json.loads(stream.readline())):
                    assert "error" not in answer, answer
                return answer["return"]

            execute("qmp_capabilities")
            yield execute
    finally:
        os.close(folder)
