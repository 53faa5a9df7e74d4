"""A real Kubernetes cluster started by `tools/cluster`, as tests use it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "cluster"
KUBECTL = ROOT / ".venv" / "bin" / "kubectl"
CGROUPS = Path("/sys/fs/cgroup")
BUSYBOX = "localhost/busybox:1"


def tool(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run `tools/cluster` with an input and return its result."""
    command = [TOOL, *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=400)


@dataclass(frozen=True)
class KubernetesCluster:
    """A cluster that is up."""

    name: str
    kubeconfig: str

    def run_kubectl(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl and return its result."""
        command = [str(KUBECTL), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)

    def kubectl(self, *arguments: str, text: str = "") -> str:
        """Run kubectl and return its output; fail if kubectl does."""
        done = self.run_kubectl(*arguments, text=text)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """Return an object, or a list of objects, as kubectl prints it in JSON."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Apply manifests."""
        self.kubectl("apply", "-f", "-", text="\n---\n".join(map(json.dumps, manifests)))

    def wait(self, what: str, condition: str = "condition=Ready") -> None:
        """Wait for a condition of an object."""
        self.kubectl("wait", what, f"--for={condition}", "--timeout=90s")

    def execute(self, pod: str, *command: str) -> str:
        """Run a command in a pod and return its output."""
        return self.kubectl("exec", pod, "--", *command)


@contextlib.contextmanager
def running_cluster(name: str, *options: str) -> Iterator[KubernetesCluster]:
    """Start a cluster, and remove it at the end whatever happens."""
    try:
        started = tool("up", "--name", name, *options)
        assert started.returncode == 0, started.stdout + started.stderr
        print(started.stdout)
        yield KubernetesCluster(name, tool("kubeconfig", "--name", name).stdout.strip())
    finally:
        removed = tool("down", "--name", name)
    assert removed.returncode == 0, removed.stderr


def a_pod(name: str, script: str = "sleep 100000", **spec: Any) -> dict[str, Any]:
    """Return a pod that runs a shell script in busybox and dies at once when it is deleted."""
    resources = {
        "requests": {"cpu": "50m", "memory": "32Mi"},
        "limits": {"cpu": "100m", "memory": "64Mi"},
    }
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "resources": resources,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def eventually(fact: Callable[[], bool], seconds: float = 60) -> bool:
    """Return whether a fact became true in time."""
    deadline = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def memory_limit(cluster: KubernetesCluster, pod: dict[str, Any]) -> int:
    """Return the memory limit the kernel enforces for a pod's container."""
    container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    for hierarchy, file in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        for directory in (CGROUPS / hierarchy / f"livevirt-{cluster.name}").rglob(container):
            return int((directory / file).read_text())
    raise AssertionError(f"no memory cgroup of container {container}")
