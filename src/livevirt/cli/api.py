"""`livevirt api`: the aggregated API server of subresources.kubevirt.io, on a cluster."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from livevirt.cli import cluster, frame


@click.command()
@cluster.flags(without=("-n",))
@click.option(
    "--listen", default="0.0.0.0:8443", show_default=True, metavar="HOST:PORT",
    callback=frame.address,
    help="Where to serve HTTPS; port 0 takes any free one.",
)  # fmt: skip
@click.option(
    "--log-level", default="info", show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]), help="How much to log.",
)  # fmt: skip
def api(listen: tuple[str, int], log_level: str) -> None:
    """Serve subresources.kubevirt.io on a Kubernetes cluster, behind kube-apiserver.

    Users are those that kube-apiserver names, on connections with the certificate of its front
    proxy; what they may do is decided by SubjectAccessReview. It issues its own certificates, keeps
    them in the Secret livevirt-api-certificates of namespace kubevirt, renews them, and puts its CA
    bundle into its APIServices.

    \b
    livevirt api                                         # in a pod of the cluster
    livevirt api --kubeconfig FILE --listen 10.0.0.1:8443
    """
    from livevirt import logs
    from livevirt.cluster import api as server
    from livevirt.cluster import process
    from livevirt.cluster.api_manifests import NAME
    from livevirt.cluster.certificates import Lifetimes
    from livevirt.kube.client.limits import COMPONENT
    from livevirt.kube.client.remote import RemoteClient
    from livevirt.kube.client.transport import Transport
    from livevirt.kube.control.requests import Requests

    logs.configure(log_level)
    host, port = listen
    requests = Requests()
    access = cluster.component_access(cluster.chosen())
    transport = Transport(access, allowed=COMPONENT, observer=requests)
    client = RemoteClient(access, manager=NAME, transport=transport)
    settings = server.Settings(host, port, Lifetimes(), (requests.samples,))

    def ready(taken: int) -> None:
        click.echo(f"ready: https://{host}:{taken}")

    async def serve() -> None:
        try:
            await server.serve(settings, client, lambda: datetime.now(UTC), ready)
        finally:
            await transport.close()

    process.run(serve)
