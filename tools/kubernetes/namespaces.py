"""Network namespaces of a cluster: creation, topology, and the processes inside them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from host import ClusterError, run
from processes import process_ids, start_time
from record import Cluster


def create(cluster: Cluster) -> None:
    """Create the hub's and the nodes' namespaces and connect them.

    The hub has a bridge `br0`. Each node has one interface on it, and a route to the pods of every
    other node. Services are reached from the hub through the first node's kube-proxy.
    """
    prefix = 24
    hub = [
        "link set lo up",
        "link add br0 type bridge",
        f"addr add {cluster.hub_address}/{prefix} dev br0",
        "link set br0 up",
    ]
    _create_namespace(cluster.hub)
    for node in cluster.node_names:
        _create_namespace(cluster.namespace(node))
        hub += [
            f"link add {node} type veth peer name eth0 netns {cluster.namespace(node)}",
            f"link set {node} master br0 up",
        ]
    routes = {node: _pod_route(cluster, node) for node in cluster.node_names}
    if cluster.node_names:
        first = cluster.node_address(cluster.node_names[0])
        hub.append(f"route add {cluster.services_network} via {first}")
    _configure(cluster.hub, [*hub, *routes.values()])
    for node in cluster.node_names:
        commands = [
            "link set lo up",
            f"addr add {cluster.node_address(node)}/{prefix} dev eth0",
            "link set eth0 up",
            f"route add default via {cluster.hub_address}",
            *(route for other, route in routes.items() if other != node),
        ]
        _configure(cluster.namespace(node), commands)


def delete(cluster: Cluster) -> None:
    """Remove the cluster's namespaces; their interfaces go with them."""
    for path in all_namespaces(cluster):
        while path.is_mount() or _is_namespace(path):
            run(["umount", path])
        path.unlink()


def all_namespaces(cluster: Cluster) -> list[Path]:
    """Return the files of the namespaces that exist, also of an incomplete cluster."""
    return sorted((cluster.run_directory / "namespaces").glob("*"))


def processes_inside(cluster: Cluster) -> list[int]:
    """Return the ids of the processes in any of the cluster's network namespaces."""
    namespaces = {(path.stat().st_dev, path.stat().st_ino) for path in all_namespaces(cluster)}
    found = []
    for pid in process_ids():
        try:
            status = os.stat(f"/proc/{pid}/ns/net")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if (status.st_dev, status.st_ino) in namespaces and start_time(pid) is not None:
            found.append(pid)
    return found


def kill_inside(cluster: Cluster, seconds: float = 15) -> None:
    """Kill every process in the cluster's network namespaces.

    A node's pods have network namespaces of their own, but die with the first process of the
    node's PID namespace.
    """
    deadline = time.monotonic() + seconds
    while pids := processes_inside(cluster):
        if time.monotonic() > deadline:
            raise ClusterError(f"processes of {cluster.name} did not end: {pids}")
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def _pod_route(cluster: Cluster, node: str) -> str:
    return f"route add {cluster.pod_network(node)} via {cluster.node_address(node)}"


def _create_namespace(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    run(["unshare", f"--net={path}", "true"])


def _configure(namespace: Path, commands: list[str]) -> None:
    run(["nsenter", f"--net={namespace}", "ip", "-batch", "-"], text="\n".join(commands) + "\n")


def _is_namespace(path: Path) -> bool:
    """Return whether a namespace is mounted on the file; `is_mount` knows directories only."""
    return path.stat().st_dev != path.parent.stat().st_dev
