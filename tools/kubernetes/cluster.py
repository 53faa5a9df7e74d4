"""Bring a cluster up and take it down again, leaving nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import cgroups
import control_plane
import namespaces
import node
from api import Api
from build import helper_program
from control_plane import HOST_PATH_VOLUMES, NODE_MONITOR_SECONDS, STORAGE_CLASS, Options
from host import CACHE, ClusterError, locked, run, say, uninterrupted, wait_until
from node import Node
from node_init import PRIVATE_DIRECTORIES
from processes import ComponentFailed, Process, find, kill, recorded
from programs import Runtime, base_images, container_runtime, kubernetes_programs
from record import MAXIMUM_NODES, REGISTRY, Cluster, all_clusters, free_number, load

DATA = CACHE.parent / "clusters"
DATA_MARK = ".livevirt-cluster"  # marks a cluster's data
READY_SECONDS = 120
CREATED_DIRECTORIES = REGISTRY / "created-directories.json"


@dataclass(frozen=True)
class Request:
    """What `up` is asked for."""

    name: str
    nodes: int = 2
    hollow: int = 0
    data: Path = DATA
    options: Options = field(default_factory=Options)


def up(request: Request) -> Cluster:
    """Start a cluster and wait until all its nodes are ready.

    Remains of a cluster of the same name are removed first; after a failure or an interruption
    everything is removed again.
    """
    _check(request)
    with locked(REGISTRY / f"{request.name}.lock"):
        if remains := load(request.name):
            if remains.existing_kubeconfig or _runs(remains):
                raise ClusterError(
                    f"cluster {request.name} is running; stop it with: down --name {request.name}"
                )
            say(f"removing the remains of {request.name}")
            _remove(remains)
        programs = kubernetes_programs(_needed_components(request))
        runtime = container_runtime() if request.nodes else None
        try:
            return _start(_reserve(request), request, programs, runtime)
        except BaseException:
            with uninterrupted():
                if incomplete := load(request.name):
                    say(f"cleaning up {request.name}")
                    _remove(incomplete)
            raise


def adopt(name: str) -> Cluster:
    """Record the existing cluster that KUBECONFIG points to under a name."""
    kubeconfig = os.environ.get("KUBECONFIG", "")
    if not kubeconfig or not Path(kubeconfig).is_file():
        raise ClusterError("--existing needs KUBECONFIG to name one kubeconfig file")
    with locked(REGISTRY / f"{name}.lock"):
        if load(name):
            raise ClusterError(f"cluster {name} exists already; stop it with: down --name {name}")
        path = Path(kubeconfig).resolve()
        if not Api(path).ready():
            raise ClusterError(f"the API server of {path} does not answer that it is ready")
        fields = {"existing_kubeconfig": str(path), "complete": True}
        cluster = Cluster(name, -1, 0, 0, path.parent, **fields)  # type: ignore[arg-type]
        cluster.save()
    return cluster


def down(name: str) -> bool:
    """Remove a cluster with all its processes and traces; return whether there was one."""
    with locked(REGISTRY / f"{name}.lock"):
        cluster = load(name)
        if cluster is None:
            return False
        _remove(cluster)
    return True


def load_image(cluster: Cluster, archive: Path) -> None:
    """Import a docker or OCI archive into every node."""
    if cluster.existing_kubeconfig:
        raise ClusterError("cannot load images into an existing cluster; push them to its registry")
    runtime = container_runtime()
    for name in cluster.node_names:
        node.import_images(Node(cluster, name), archive, runtime)


def wait_ready(cluster: Cluster, processes: Sequence[Process]) -> None:
    """Wait until the API server and all nodes are ready."""
    api = Api(cluster.kubeconfig)
    processes = [find(cluster, "kube-apiserver"), *processes]
    _wait(processes, api.ready)
    for name in cluster.node_names:
        others = [process for process in processes if process.name != f"kubelet-{name}"]
        kubelet = find(cluster, f"kubelet-{name}")
        _wait([kubelet, *others], lambda name=name: name in api.ready_nodes())  # type: ignore[misc]
    nodes = set(cluster.node_names)
    if cluster.hollow:
        hollow = {f"hollow-{index}" for index in range(1, cluster.hollow + 1)}
        _wait([find(cluster, "hollow-nodes"), *processes], lambda: hollow <= api.ready_nodes())
        nodes |= hollow
    if nodes:
        # A node that was not ready at the controller manager's last look may still get a taint.
        _wait(processes, _lasting(lambda: nodes <= api.ready_nodes(), NODE_MONITOR_SECONDS + 0.2))


def _check(request: Request) -> None:
    if os.geteuid() != 0:
        raise ClusterError("only root can create network namespaces; run this command as root")
    if not 0 <= request.nodes <= MAXIMUM_NODES:
        raise ClusterError(f"--nodes must be between 0 and {MAXIMUM_NODES}")


def _needed_components(request: Request) -> list[str]:
    components = list(control_plane.COMPONENTS)
    if request.nodes:
        components += node.COMPONENTS
    if request.hollow:
        components.append("hollow-nodes")
    return components


def _reserve(request: Request) -> Cluster:
    """Record the cluster, with a network no other one uses, before anything of it exists."""
    with locked(REGISTRY / "lock"):
        cluster = Cluster(
            name=request.name,
            number=free_number(),
            nodes=request.nodes,
            hollow=request.hollow,
            data=request.data.resolve() / request.name,
        )
        if cluster.data.exists():
            if not (cluster.data / DATA_MARK).exists():
                raise ClusterError(f"{cluster.data} exists and is not a cluster's; move it away")
            shutil.rmtree(cluster.data)  # of a cluster before the last reboot
        cluster.data.mkdir(parents=True)
        (cluster.data / DATA_MARK).touch()
        cluster.save()
        _create_mount_points()
    return cluster


def _start(
    cluster: Cluster, request: Request, programs: dict[str, Path], runtime: Runtime | None
) -> Cluster:
    started = time.monotonic()

    def report(what: str) -> None:
        say(f"{time.monotonic() - started:5.1f} s  {what}")

    control_plane.create_credentials(cluster)
    cluster.volumes.mkdir()
    namespaces.create(cluster)
    cluster = control_plane.start_forwarder(cluster, helper_program())
    cluster.save()
    storage = control_plane.start_storage(cluster, programs, request.options)
    report("etcd and kube-apiserver started")

    nodes = [Node(cluster, name) for name in cluster.node_names]
    with ThreadPoolExecutor(max(1, len(nodes))) as pool:
        if runtime is not None:
            images = base_images(runtime)
            list(pool.map(lambda each: _prepare_node(each, runtime, images), nodes))
            report("containerd ready on all nodes, images imported")
    api = Api(cluster.kubeconfig)
    _wait([storage[1], storage[0]], api.ready)
    report("kube-apiserver ready")

    processes = [*control_plane.start_controllers(cluster, programs, request.options), *storage]
    if runtime is not None:
        for each in nodes:
            processes.append(node.start_kubelet(each, programs["kubelet"], runtime))
            processes.append(node.start_proxy(each, programs["kube-proxy"], runtime))
    if cluster.hollow:
        processes.append(control_plane.start_hollow_nodes(cluster, programs))
    api.create("/apis/storage.k8s.io/v1/storageclasses", STORAGE_CLASS)
    wait_ready(cluster, processes)
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    _wait(processes, lambda: api.get(account) is not None)
    report(f"{len(nodes)} nodes and {cluster.hollow} hollow nodes Ready")
    cluster = replace(cluster, complete=True)
    cluster.save()
    return cluster


def _prepare_node(each: Node, runtime: Runtime, images: Path) -> None:
    node.start_namespaces(each, helper_program())
    containerd = node.start_containerd(each, runtime)
    node.wait_for_containerd(each, containerd, runtime)
    node.import_images(each, images, runtime)


def _wait(processes: Sequence[Process], condition: Callable[[], bool]) -> None:
    """Wait for a condition of the first process, as long as all of them are alive."""

    def settled() -> bool:
        return condition() or not all(process.alive for process in processes)

    in_time = wait_until(settled, READY_SECONDS)
    for process in processes:
        if not process.alive:
            raise ComponentFailed(process, "ended")
    if not in_time:
        raise ComponentFailed(processes[0], f"was not ready after {READY_SECONDS} s")


def _lasting(condition: Callable[[], bool], seconds: float) -> Callable[[], bool]:
    """Return a condition that is met once another one has been true for some time."""
    since = time.monotonic()

    def lasted() -> bool:
        nonlocal since
        if not condition():
            since = time.monotonic()
        return time.monotonic() - since >= seconds

    return lasted


def _runs(cluster: Cluster) -> bool:
    """Return whether a cluster came up completely and its API server's way in still exists."""
    return cluster.complete and find(cluster, "forward").alive


def _remove(cluster: Cluster) -> None:
    """Remove everything of a cluster, complete or not. Doing it again does no harm."""
    if cluster.existing_kubeconfig:
        cluster.forget()
        return
    for process in recorded(cluster):
        kill(process)  # it may not have entered its namespaces yet
    namespaces.kill_inside(cluster)
    for process in recorded(cluster):
        wait_until(lambda process=process: not process.alive, 5)  # type: ignore[misc]
    namespaces.delete(cluster)
    cgroups.remove(cluster.cgroup)
    _remove_data(cluster.data)
    with locked(REGISTRY / "lock"):
        cluster.forget()
        if not any(not other.existing_kubeconfig for other in all_clusters()):
            _remove_mount_points()


def _remove_data(data: Path) -> None:
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    for line in reversed(mounts):
        target = line.split()[1].encode().decode("unicode_escape")
        if Path(target).is_relative_to(data):
            run(["umount", "--lazy", target])
    if data.exists():
        shutil.rmtree(data)


def _create_mount_points() -> None:
    """Create the directories that nodes mount their own ones over, where the host has none."""
    created = _created_directories()
    for target in (*PRIVATE_DIRECTORIES, str(HOST_PATH_VOLUMES)):
        if not os.path.isdir(target):
            os.makedirs(target)
            created.append(target)
    CREATED_DIRECTORIES.write_text(json.dumps(created))


def _remove_mount_points() -> None:
    for target in _created_directories():
        try:
            os.rmdir(target)
        except OSError:
            continue  # it is gone, or used by another process by now
    CREATED_DIRECTORIES.unlink(missing_ok=True)


def _created_directories() -> list[str]:
    if not CREATED_DIRECTORIES.exists():
        return []
    created: list[str] = json.loads(CREATED_DIRECTORIES.read_text())
    return created
