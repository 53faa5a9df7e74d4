"""A node: kubelet, kube-proxy and containerd in their own network, mount and PID namespaces."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cgroups
from host import ClusterError, run, wait_until
from processes import ComponentFailed, Process, find, process_ids, start, stat_fields
from programs import PAUSE_IMAGE, Runtime
from record import Cluster

COMPONENTS = ("kubelet", "kube-proxy")
INIT_SCRIPT = Path(__file__).resolve().parent / "node_init.py"
SOCKET = "/run/containerd/containerd.sock"


@dataclass(frozen=True)
class Node:
    """One node of a cluster."""

    cluster: Cluster
    name: str

    @property
    def directory(self) -> Path:
        return self.cluster.data / "nodes" / self.name

    @property
    def cgroup(self) -> str:
        return f"{self.cluster.cgroup}/{self.name}"

    @property
    def init_pid(self) -> int:
        """Return the first process of the node's PID namespace, as the host numbers it."""
        outer = find(self.cluster, self.name).pid
        for pid in process_ids():
            fields = stat_fields(pid)
            if fields is not None and int(fields[1]) == outer:
                return pid
        raise ClusterError(f"{self.name} of {self.cluster.name} is not running")

    def inside(self, argv: Sequence[str | Path]) -> list[str | Path]:
        """Return the command that runs a program inside the node."""
        namespaces = ["--mount", "--net", "--pid", "--uts"]
        return ["nsenter", f"--target={self.init_pid}", *namespaces, "--", *argv]


def start_namespaces(node: Node, helper: Path) -> Process:
    """Create the node's namespaces, held by one idle process, and its private directories."""
    cgroups.create(node.cgroup)
    node.directory.mkdir(parents=True)
    argv: list[str | Path] = [
        *("nsenter", f"--net={node.cluster.namespace(node.name)}"),
        *("unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"),
        *("--propagation", "private"),
        *(sys.executable, INIT_SCRIPT, node.name, node.directory, node.cluster.volumes, helper),
    ]
    process = start(node.cluster, node.name, argv)
    _wait(process, lambda: (node.directory / "ready").exists(), 20)
    return process


def start_containerd(node: Node, runtime: Runtime) -> Process:
    """Start the container runtime."""
    config = node.directory / "containerd.toml"
    config.write_text(_containerd_config(node, runtime))
    (node.directory / "cni-config" / "net.d").mkdir(parents=True, exist_ok=True)
    network = node.directory / "cni-config" / "net.d" / "10-pods.conflist"
    network.write_text(json.dumps(_pod_network(node)))
    argv = node.inside([runtime.find("containerd"), "--config", config])
    return start(node.cluster, f"containerd-{node.name}", argv, runtime.environment)


def wait_for_containerd(node: Node, process: Process, runtime: Runtime) -> None:
    """Wait until the container runtime answers."""
    path = Path(f"/proc/{node.init_pid}/root{SOCKET}")

    def answers() -> bool:
        try:
            _ctr(node, runtime, ["images", "list", "-q"])
        except ClusterError:
            return False
        return True

    _wait(process, path.exists, 30)
    _wait(process, answers, 30)


def import_images(node: Node, archive: Path, runtime: Runtime) -> None:
    """Import the images of a docker or OCI archive."""
    snapshotter = f"--snapshotter={_snapshotter(node)}"
    _ctr(node, runtime, ["images", "import", snapshotter, "-"], archive)


def start_kubelet(node: Node, kubelet: Path, runtime: Runtime) -> Process:
    """Start the kubelet; the API server and the container runtime have to be ready."""
    config = node.directory / "kubelet.json"
    config.write_text(json.dumps(_kubelet_config(node), indent=2))
    argv: list[str | Path] = [
        kubelet,
        f"--config={config}",
        f"--kubeconfig={node.cluster.pki / node.name}.kubeconfig",
        f"--hostname-override={node.name}",
        f"--node-ip={node.cluster.node_address(node.name)}",
    ]
    return start(node.cluster, f"kubelet-{node.name}", node.inside(argv), runtime.environment)


def start_proxy(node: Node, kube_proxy: Path, runtime: Runtime) -> Process:
    """Start kube-proxy, which makes Services work by nftables rules in the node's namespace."""
    config = node.directory / "kube-proxy.json"
    config.write_text(json.dumps(_proxy_config(node), indent=2))
    argv = node.inside([kube_proxy, f"--config={config}"])
    return start(node.cluster, f"kube-proxy-{node.name}", argv, runtime.environment)


def _wait(process: Process, condition: Callable[[], bool], seconds: float) -> None:
    def settled() -> bool:
        return condition() or not process.alive

    if not wait_until(settled, seconds, 0.05):
        raise ComponentFailed(process, f"was not ready after {seconds:.0f} s")
    if not process.alive:
        raise ComponentFailed(process, "ended")


def _ctr(
    node: Node, runtime: Runtime, arguments: Sequence[str], archive: Path | None = None
) -> str:
    argv = node.inside([runtime.find("ctr"), "--namespace=k8s.io", *arguments])
    if archive is None:
        return run(argv, env=runtime.environment)
    with archive.open("rb") as stream:
        return run(argv, env=runtime.environment, stdin=stream)


def _snapshotter(node: Node) -> str:
    """Return containerd's snapshotter: overlayfs, unless the data itself is on an overlay."""
    kind = run(["stat", "--file-system", "--format=%T", node.cluster.data]).strip()
    return "native" if kind == "overlayfs" else "overlayfs"


def _containerd_config(node: Node, runtime: Runtime) -> str:
    # CAP_SYS_RESOURCE is often missing in containers and sandboxes: without
    # restrict_oom_score_adj no pod would start there.
    return f"""
version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    snapshotter = "{_snapshotter(node)}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{runtime.find("runc")}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{runtime.cni}"
"""


def _pod_network(node: Node) -> dict[str, Any]:
    # Point-to-point links rather than a bridge: all traffic is routed, so kube-proxy's rules see
    # both directions even between pods of one node.
    ranges = [[{"subnet": str(node.cluster.pod_network(node.name))}]]
    routes = [{"dst": "0.0.0.0/0"}]
    ipam = {"type": "host-local", "ranges": ranges, "routes": routes}
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}],
    }


def _kubelet_config(node: Node) -> dict[str, Any]:
    pki = node.cluster.pki
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "enforceNodeAllocatable": ["pods"],
        "systemReserved": {"memory": str(_reserved_memory(node.cluster))},
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/{node.name}.crt",
        "tlsPrivateKeyFile": f"{pki}/{node.name}.key",
        "clusterDomain": "cluster.local",
        "rotateCertificates": False,
        "maxPods": 200,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "evictionPressureTransitionPeriod": "5s",
        # Tolerates what a sandbox forbids, such as changing sysctls and reading /dev/kmsg.
        "featureGates": {"KubeletInUserNamespace": True},
    }


def _reserved_memory(cluster: Cluster) -> int:
    """Return the memory each node leaves to the others, so that all share the machine's."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return total - total // cluster.nodes


def _proxy_config(node: Node) -> dict[str, Any]:
    kubeconfig = f"{node.cluster.pki}/kube-proxy.kubeconfig"
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": node.name,
        "clientConnection": {"kubeconfig": kubeconfig},
        "clusterCIDR": str(node.cluster.pods_network),
        "detectLocalMode": "ClusterCIDR",
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # The size of the connection table belongs to the whole machine: leave it alone.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
