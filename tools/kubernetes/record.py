"""What is known about each cluster: its record in /run, and the addresses and paths it implies."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from host import ClusterError

# Records live in /run: after a reboot no cluster and no record is left.
REGISTRY = Path("/run/livevirt/clusters")
FIRST_NETWORK = 200  # cluster number i uses 10.(200+i).0.0/16
NETWORKS = 50
MAXIMUM_NODES = 60


@dataclass(frozen=True)
class Cluster:
    """One cluster. Nothing in it changes after `up`, so any command can work from the record."""

    name: str
    number: int
    nodes: int
    hollow: int
    data: Path
    port: int = 0
    existing_kubeconfig: str | None = None
    complete: bool = False

    @property
    def run_directory(self) -> Path:
        return REGISTRY / self.name

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    @property
    def pki(self) -> Path:
        return self.data / "pki"

    @property
    def audit_log(self) -> Path:
        return self.data / "audit.log"

    @property
    def volumes(self) -> Path:
        """Directory of the volumes made by the host path provisioner."""
        return self.data / "volumes"

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of an administrator on the host."""
        return Path(self.existing_kubeconfig or self.data / "kubeconfig")

    @property
    def internal_kubeconfig(self) -> Path:
        """Kubeconfig of an administrator inside the cluster's network namespaces."""
        return self.pki / "admin.kubeconfig"

    @property
    def hub(self) -> Path:
        """Network namespace of the control plane."""
        return self.namespace("hub")

    def namespace(self, name: str) -> Path:
        return self.run_directory / "namespaces" / name

    @property
    def cgroup(self) -> str:
        return f"livevirt-{self.name}"

    @property
    def node_names(self) -> list[str]:
        return [f"node-{index}" for index in range(1, self.nodes + 1)]

    @property
    def network(self) -> IPv4Network:
        return IPv4Network(f"10.{FIRST_NETWORK + self.number}.0.0/16")

    @property
    def hub_address(self) -> IPv4Address:
        return self.network[1]

    @property
    def server(self) -> str:
        """URL of the API server inside the cluster's network namespaces."""
        return f"https://{self.hub_address}:6443"

    @property
    def pods_network(self) -> IPv4Network:
        return IPv4Network(f"{self.network[64 * 256]}/18")

    @property
    def services_network(self) -> IPv4Network:
        return IPv4Network(f"{self.network[128 * 256]}/17")

    def node_address(self, node: str) -> IPv4Address:
        return self.network[10 + _node_index(node)]

    def pod_network(self, node: str) -> IPv4Network:
        return IPv4Network(f"{self.pods_network[256 * _node_index(node)]}/24")

    def save(self) -> None:
        """Write the record."""
        # Only for root: the environment of every process is recorded here.
        self.run_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = json.dumps(asdict(self) | {"data": str(self.data)}, indent=2)
        unfinished = self.run_directory / "cluster.json.part"
        unfinished.write_text(content + "\n")
        unfinished.rename(self.run_directory / "cluster.json")

    def forget(self) -> None:
        """Remove the record."""
        shutil.rmtree(self.run_directory, ignore_errors=True)


def _node_index(node: str) -> int:
    return int(node.rpartition("-")[2])


def load(name: str) -> Cluster | None:
    """Return the record of a cluster, or None if there is none."""
    try:
        fields = json.loads((REGISTRY / name / "cluster.json").read_text())
    except FileNotFoundError:
        return None
    return Cluster(**fields | {"data": Path(fields["data"])})


def require(name: str) -> Cluster:
    """Return the record of a cluster, or fail with what to do."""
    cluster = load(name)
    if cluster is None:
        known = ", ".join(other.name for other in all_clusters()) or "none"
        raise ClusterError(
            f"no cluster {name} (clusters: {known}); start it with: up --name {name}"
        )
    return cluster


def all_clusters() -> Iterator[Cluster]:
    """Yield every recorded cluster by name."""
    for path in sorted(REGISTRY.glob("*/cluster.json")):
        if cluster := load(path.parent.name):
            yield cluster


def free_number() -> int:
    """Return a number, and so a network, that no other cluster uses."""
    used = {cluster.number for cluster in all_clusters()}
    for number in range(NETWORKS):
        if number not in used:
            return number
    raise ClusterError(f"{NETWORKS} clusters exist already; take some down first")


def check_name(name: str) -> None:
    """Fail if a name cannot be part of paths and cgroups."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", name):
        raise ClusterError(f"invalid name {name!r}: use up to 40 of a-z, 0-9 and -")
