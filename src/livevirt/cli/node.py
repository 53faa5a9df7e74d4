"""`livevirt node`: the node agent on a node of a Kubernetes cluster."""

from __future__ import annotations

import platform
from pathlib import Path

import click

from livevirt.cli import cluster, frame


@click.command()
@cluster.flags(without=("-n",))
@click.option(
    "--node-name", envvar="NODE_NAME", default=platform.node, show_default="the host name",
    help="The name of the Node that this machine is.",
)  # fmt: skip
@click.option(
    "--data-dir", type=click.Path(path_type=Path), default=Path("/var/lib/livevirt"),
    show_default=True, help="Where to keep notes about guests; it must outlive this process.",
)  # fmt: skip
@click.option(
    "--kubelet-root", type=click.Path(path_type=Path), default=Path("/var/lib/kubelet"),
    show_default=True, help="The root directory of the kubelet.",
)  # fmt: skip
@click.option(
    "--listen", default="0.0.0.0:8445", show_default=True, metavar="HOST:PORT",
    callback=frame.address,
    help="Where to serve livevirt api over HTTPS; port 0 takes any free one.",
)  # fmt: skip
@click.option(
    "--address", envvar="POD_IP", default="", metavar="IP",
    help="Where livevirt api reaches this agent (default: the host of --listen).",
)  # fmt: skip
@click.option(
    "--metrics-listen", default="127.0.0.1:8081", show_default=True,
    metavar="HOST:PORT", callback=frame.address,
    help="Where to serve /healthz, /readyz and /metrics; port 0 takes any free one.",
)  # fmt: skip
@click.option(
    "--log-level", default="info", show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]), help="How much to log.",
)  # fmt: skip
def node(
    node_name: str,
    data_dir: Path,
    kubelet_root: Path,
    listen: tuple[str, int],
    address: str,
    metrics_listen: tuple[str, int],
    log_level: str,
) -> None:
    """Run the guests of a node of a Kubernetes cluster.

    The kubelet of the node runs their pods. This agent starts QEMU in them, follows the guests and
    changes them while they run. It may be restarted at any time; guests run on. It needs root, and
    must see the processes, the cgroups and the kubelet's directory of the node.

    \b
    livevirt node                                        # in a pod of the DaemonSet
    livevirt node --kubeconfig FILE --node-name node-1
    """
    from livevirt import logs
    from livevirt.cluster import node as component
    from livevirt.cluster import process

    logs.configure(log_level)
    access = cluster.component_access(cluster.chosen())
    settings = component.Settings(
        node_name, data_dir, kubelet_root, metrics_listen, listen, address or listen[0]
    )

    def ready(port: int) -> None:
        click.echo(f"ready: http://{metrics_listen[0]}:{port}, node {node_name}")

    process.run(lambda: component.run(access, settings, ready))
