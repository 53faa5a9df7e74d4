"""`livevirt controller`: the controllers of virtual machines on a Kubernetes cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from livevirt.cli import cluster, frame
from livevirt.cli.webhook import certificate_names

if TYPE_CHECKING:
    from livevirt.cluster.controller import Settings
    from livevirt.kube.client.access import Access


@click.command()
@cluster.flags(without=("-n",))
@click.option(
    "--listen", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT",
    callback=frame.address,
    help="Where to serve /healthz, /readyz and /metrics; port 0 takes any free one.",
)  # fmt: skip
@click.option(
    "--lease-namespace", default="kubevirt", show_default=True,
    help="The namespace of the Lease by which replicas elect their leader.",
)  # fmt: skip
@click.option(
    "--lease-name", default="livevirt-controller", show_default=True, help="The name of that Lease."
)
@click.option(
    "--kube-api-qps", default=50.0, show_default=True, type=click.FloatRange(min=1),
    help="Requests per second to the API server, on average.",
)  # fmt: skip
@click.option(
    "--kube-api-burst", default=100, show_default=True, type=click.IntRange(min=1),
    help="Requests to the API server that may be sent at once.",
)  # fmt: skip
@click.option(
    "--launcher-image", default="", envvar="LIVEVIRT_LAUNCHER_IMAGE", metavar="IMAGE",
    help="The image of launcher pods, which is livevirt's own  [env: LIVEVIRT_LAUNCHER_IMAGE].",
)  # fmt: skip
@click.option(
    "--all", "all_", is_flag=True, help="Run the webhook and the API server in this process, too."
)
@click.option(
    "--webhook-listen", default="0.0.0.0:8443", show_default=True, metavar="HOST:PORT",
    callback=frame.address, help="With --all: where the webhook serves HTTPS.",
)  # fmt: skip
@click.option(
    "--webhook-url", default="", metavar="URL",
    help="With --all: how kube-apiserver reaches the webhook (default: by its Service).",
)  # fmt: skip
@click.option(
    "--api-listen", default="0.0.0.0:8444", show_default=True, metavar="HOST:PORT",
    callback=frame.address, help="With --all: where the API server serves HTTPS.",
)  # fmt: skip
@click.option(
    "--log-level", default="info", show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]), help="How much to log.",
)  # fmt: skip
def controller(
    listen: tuple[str, int],
    lease_namespace: str,
    lease_name: str,
    kube_api_qps: float,
    kube_api_burst: int,
    launcher_image: str,
    all_: bool,
    webhook_listen: tuple[str, int],
    webhook_url: str,
    api_listen: tuple[str, int],
    log_level: str,
) -> None:
    """Run the controllers of virtual machines on a Kubernetes cluster.

    Any number of replicas may run. One of them works, and another takes over within 20 seconds
    of its end. The cluster is that of --kubeconfig or $KUBECONFIG, in a pod the pod's own.

    \b
    livevirt controller                                  # in a pod
    livevirt controller --kubeconfig FILE --listen 127.0.0.1:0
    livevirt controller --all                            # with webhook and API server
    """
    from dataclasses import replace

    from livevirt import logs
    from livevirt.cluster import controller as component
    from livevirt.cluster import leader, manifests, process
    from livevirt.kube.client.limits import COMPONENT
    from livevirt.kube.control.cache import Key

    logs.configure(log_level)
    access = cluster.component_access(cluster.chosen())
    candidacy = leader.Candidacy(Key(lease_namespace, lease_name), leader.unique_identity())
    limits = replace(COMPONENT, qps=kube_api_qps, burst=kube_api_burst)
    settings = component.Settings(*listen, candidacy, limits, launcher_image or manifests.IMAGE)
    if all_:
        _run_all(access, settings, webhook_listen, webhook_url, api_listen)
        return

    def ready(host: str, port: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"ready: http://{shown}:{port}, identity {candidacy.identity}")

    process.run(lambda: component.Replica(access, settings).run(ready))


def _run_all(
    access: Access,
    controllers: Settings,
    webhook_listen: tuple[str, int],
    webhook_url: str,
    api_listen: tuple[str, int],
) -> None:
    from livevirt.cluster import all_components, api, process, webhook
    from livevirt.cluster.certificates import Lifetimes
    from livevirt.cluster.webhook_manifests import Endpoint

    lifetimes = Lifetimes()
    names = certificate_names(webhook_listen[0], webhook_url)
    settings = all_components.Settings(
        controllers,
        webhook.Settings(*webhook_listen, Endpoint(webhook_url), names, lifetimes),
        api.Settings(*api_listen, lifetimes),
    )

    def ready(component: str, url: str) -> None:
        click.echo(f"ready: {url}, {component}")

    process.run(lambda: all_components.run(access, settings, ready))
