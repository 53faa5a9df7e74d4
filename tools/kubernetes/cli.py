"""Real Kubernetes clusters for tests, in namespaces on one machine."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import cluster as clusters
import processes
from api import Api
from build import VERSION, helper_program, kubernetes_directory
from control_plane import Options, in_hub
from host import ClusterError, say
from node import Node
from programs import base_images, container_runtime
from record import Cluster, all_clusters, check_name, require


def main() -> int:
    """Run one command and return its exit status."""
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if "name" in arguments:
            check_name(arguments.name)
        status: int = arguments.command(arguments)
        return status
    except ClusterError as problem:
        print(f"cluster: error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("cluster: interrupted", file=sys.stderr)
        return 130


def up(arguments: argparse.Namespace) -> int:
    """Start a cluster."""
    if arguments.existing:
        found = clusters.adopt(arguments.name)
        say(f"using the existing cluster of {found.kubeconfig}")
        return 0
    started = time.monotonic()
    options = Options(
        audit=arguments.audit,
        audit_policy=arguments.audit_policy,
        apiserver=arguments.apiserver_arg,
        controller_manager=arguments.controller_manager_arg,
        scheduler=arguments.scheduler_arg,
    )
    request = clusters.Request(
        arguments.name, arguments.nodes, arguments.hollow, arguments.data_dir, options
    )
    created = clusters.up(request)
    say(f"{created.name} is ready after {time.monotonic() - started:.1f} s; use it with")
    say(f"    export KUBECONFIG={created.kubeconfig}")
    return 0


def down(arguments: argparse.Namespace) -> int:
    """Remove a cluster and everything it made."""
    names = [cluster.name for cluster in all_clusters()] if arguments.all else [arguments.name]
    for name in names:
        say(f"{name} removed" if clusters.down(name) else f"no cluster {name}")
    return 0


def kubeconfig(arguments: argparse.Namespace) -> int:
    """Print the path of the administrator's kubeconfig."""
    cluster = require(arguments.name)
    internal = arguments.internal and not cluster.existing_kubeconfig
    print(cluster.internal_kubeconfig if internal else cluster.kubeconfig)
    return 0


def status(arguments: argparse.Namespace) -> int:
    """Print the state of a cluster's components and nodes; fail if one is missing."""
    cluster = require(arguments.name)
    print(f"kubeconfig  {cluster.kubeconfig}")
    healthy = Api(cluster.kubeconfig).ready()
    if not cluster.existing_kubeconfig:
        print(f"logs        {cluster.logs}")
        print(f"network     {cluster.network}, API server inside it {cluster.server}")
        healthy &= _print_processes(cluster)
    ready = Api(cluster.kubeconfig).ready_nodes()
    print(f"nodes Ready {', '.join(sorted(ready)) or 'none'}")
    healthy &= set(cluster.node_names) <= ready
    print(f"status      {'healthy' if healthy else 'NOT HEALTHY'}")
    return 0 if healthy else 1


def list_clusters(arguments: argparse.Namespace) -> int:
    """Print every cluster."""
    for cluster in all_clusters():
        kind = "existing" if cluster.existing_kubeconfig else f"{cluster.nodes} nodes"
        state = "up" if cluster.complete else "incomplete"
        print(f"{cluster.name}\t{kind}\t{cluster.hollow} hollow\t{state}\t{cluster.kubeconfig}")
    return 0


def load_image(arguments: argparse.Namespace) -> int:
    """Import a docker or OCI archive into every node."""
    cluster = require(arguments.name)
    if not arguments.archive.is_file():
        raise ClusterError(f"no such archive: {arguments.archive}")
    clusters.load_image(cluster, arguments.archive)
    say(f"imported {arguments.archive} into {', '.join(cluster.node_names) or 'no node'}")
    return 0


def stop(arguments: argparse.Namespace) -> int:
    """Stop a component, or freeze it with --signal STOP."""
    process = processes.find(require(arguments.name), arguments.component)
    kind = signal.Signals[f"SIG{arguments.signal}"]
    if kind in (signal.SIGTERM, signal.SIGKILL):
        processes.stop(process, kind)
    else:
        processes.send(process, kind)
    return 0


def start(arguments: argparse.Namespace) -> int:
    """Start a stopped component again and wait until the cluster is ready."""
    cluster = require(arguments.name)
    process = processes.find(cluster, arguments.component)
    if process.name == "forward" or process.name in cluster.node_names:
        raise ClusterError(f"{process.name} cannot be started again; take the cluster down and up")
    started = processes.restart(cluster, process)
    if not arguments.no_wait:
        clusters.wait_ready(cluster, [started])
    return 0


def run_inside(arguments: argparse.Namespace) -> int:
    """Run a command in the network namespace of the control plane or of a node."""
    cluster = require(arguments.name)
    words = [word for word in arguments.words if word != "--"] or [os.environ.get("SHELL", "sh")]
    environment = {**os.environ, "KUBECONFIG": str(cluster.internal_kubeconfig)}
    if arguments.node:
        argv = Node(cluster, arguments.node).inside(words)
    else:
        argv = in_hub(cluster, *words)
    os.execvpe(str(argv[0]), [str(word) for word in argv], environment)


def build(arguments: argparse.Namespace) -> int:
    """Build and unpack everything `up` needs, without starting anything."""
    print(kubernetes_directory())
    print(helper_program())
    if os.geteuid() == 0:
        print(base_images(container_runtime()))
    return 0


def _print_processes(cluster: Cluster) -> bool:
    total, healthy = 0, True
    for process in processes.recorded(cluster):
        used = processes.resident_bytes(process.pid) if process.alive else 0
        total, healthy = total + used, healthy and process.alive
        state = f"pid {process.pid:<8}{used >> 20:>5} MiB" if process.alive else "STOPPED"
        print(f"  {process.name:<26}{state}")
    print(f"memory      {total >> 20} MiB resident, without pods")
    return healthy


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/cluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(word: str, function: object, named: bool = True) -> argparse.ArgumentParser:
        summary = (function.__doc__ or "").strip()
        added = commands.add_parser(word, help=summary, description=summary)
        added.set_defaults(command=function)
        if named:
            added.add_argument("--name", default="main", help="name of the cluster (default: main)")
        return added

    _add_up(command("up", up))
    command("down", down).add_argument("--all", action="store_true", help="every cluster")
    command("kubeconfig", kubeconfig).add_argument(
        "--internal", action="store_true", help="the one for use inside the network namespaces"
    )
    command("status", status)
    command("list", list_clusters, named=False)
    command("load-image", load_image).add_argument("archive", type=Path, metavar="TAR")
    stopping = command("stop", stop)
    stopping.add_argument("component", help="as `status` names it, such as etcd")
    signals = ("TERM", "KILL", "STOP", "CONT")
    stopping.add_argument("--signal", default="TERM", choices=signals)
    starting = command("start", start)
    starting.add_argument("component", help="as `status` names it, such as etcd")
    starting.add_argument("--no-wait", action="store_true", help="do not wait for readiness")
    running = command("exec", run_inside)
    running.add_argument(
        "--node", help="run inside this node instead of the control plane's network"
    )
    running.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    command("build", build, named=False)
    return parser


def _add_up(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=2, help="number of real nodes (default: 2)")
    parser.add_argument(
        "--hollow", type=int, default=0, help="number of nodes that only report pods"
    )
    parser.add_argument("--data-dir", type=Path, default=clusters.DATA, metavar="DIR")
    parser.add_argument("--audit", action="store_true", help="log the metadata of every request")
    parser.add_argument("--audit-policy", type=Path, metavar="FILE", help="audit with this policy")
    for component in ("apiserver", "controller-manager", "scheduler"):
        parser.add_argument(
            f"--{component}-arg",
            action="append",
            default=[],
            metavar="ARG",
            help="additional argument, as in --apiserver-arg=--v=4",
        )
    parser.add_argument(
        "--existing", action="store_true", help="use the cluster of KUBECONFIG; start nothing"
    )
    parser.epilog = f"Kubernetes {VERSION} is built unless KUBEBUILDER_ASSETS or PATH provide it."


if __name__ == "__main__":
    sys.exit(main())
