"""`livevirt webhook`: admission and conversion for a Kubernetes cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TextIO
from urllib.parse import urlsplit

import click

from livevirt.cli import cluster, frame

_ANY = ("0.0.0.0", "::")  # every address; no server is reached by it


def _duration(_: click.Context, __: click.Parameter, value: str) -> timedelta:
    from livevirt.kube.objects import times

    try:
        found = times.parse_duration(value)
    except times.TimeError as error:
        raise click.BadParameter(str(error)) from None
    if found <= timedelta():
        raise click.BadParameter("must be greater than 0")
    return found


_LEVELS = click.Choice(["debug", "info", "warning", "error"])


@click.command()
@cluster.flags(without=("-n",))
@click.option(
    "--listen", default="0.0.0.0:8443", show_default=True, metavar="HOST:PORT",
    callback=frame.address,
    help="Where to serve HTTPS; port 0 takes any free one.",
)  # fmt: skip
@click.option(
    "--url", default="", metavar="URL",
    help="How kube-apiserver reaches the webhook (default: by its Service in the cluster).",
)  # fmt: skip
@click.option(
    "--print-manifests", is_flag=True,
    help="Print its service account, roles, Service and configurations instead of serving.",
)  # fmt: skip
@click.option(
    "--certificate-lifetime", default="1440h", show_default=True, callback=_duration,
    metavar="DURATION", help="How long a serving certificate is valid.",
)  # fmt: skip
@click.option(
    "--ca-lifetime", default="8760h", show_default=True, callback=_duration, metavar="DURATION",
    help="How long the certificate authority that signs it is valid.",
)  # fmt: skip
@click.option(
    "--client-ca-file", type=click.File(), metavar="FILE",
    help="Only answer reviews of clients with a certificate of this authority; kube-apiserver shows"
    " one if its AdmissionConfiguration names it.",
)  # fmt: skip
@click.option(
    "--log-level", default="info", show_default=True, type=_LEVELS, help="How much to log."
)
def webhook(
    listen: tuple[str, int],
    url: str,
    print_manifests: bool,
    certificate_lifetime: timedelta,
    ca_lifetime: timedelta,
    client_ca_file: TextIO | None,
    log_level: str,
) -> None:
    """Serve admission, defaulting, warnings and conversion for a Kubernetes cluster.

    It issues its own certificates, keeps them in the Secret livevirt-webhook-certificates of
    namespace kubevirt, renews them, and puts its CA bundle into the webhook configurations and
    CustomResourceDefinitions.

    \b
    livevirt webhook                                         # in a pod of the cluster
    livevirt webhook --print-manifests | kubectl apply -f -
    livevirt webhook --listen 127.0.0.1:9443 --url https://127.0.0.1:9443
    """
    from livevirt import logs
    from livevirt.cluster import certificates, process, webhook_manifests
    from livevirt.cluster.webhook_manifests import Endpoint

    endpoint = Endpoint(url)
    if print_manifests:
        from livevirt.cluster import rbac

        permissions = rbac.component_manifests(rbac.WEBHOOK)
        frame.print_yaml([*permissions, *webhook_manifests.manifests(endpoint)])
        return

    from livevirt.cluster import webhook as server
    from livevirt.kube.client.limits import COMPONENT
    from livevirt.kube.client.remote import RemoteClient
    from livevirt.kube.client.transport import Transport
    from livevirt.kube.control.requests import Requests

    host, port = listen
    settings = server.Settings(
        host, port, endpoint, certificate_names(host, url),
        certificates.Lifetimes(ca_lifetime, certificate_lifetime),
        client_ca_file.read() if client_ca_file else "",
    )  # fmt: skip
    logs.configure(log_level)
    access, requests = cluster.component_access(cluster.chosen()), Requests()
    now, sources = lambda: datetime.now(UTC), (requests.samples,)

    def ready(taken: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"ready: https://{shown}:{taken}")

    async def serve() -> None:
        transport = Transport(access, allowed=COMPONENT, observer=requests)
        client = RemoteClient(access, manager=endpoint.name, transport=transport)
        await server.serve(settings, client, now, sources, ready)

    process.run(serve)


def certificate_names(host: str, url: str) -> tuple[str, ...]:
    """Return the names the certificate needs besides those of the Service."""
    named = urlsplit(url).hostname if url else None
    return tuple(each for each in (named, host) if each and each not in _ANY)
