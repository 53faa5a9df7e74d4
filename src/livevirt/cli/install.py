"""`livevirt install` and `livevirt uninstall`: livevirt on a Kubernetes cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from livevirt.cli import cluster, frame
from livevirt.cli.vm.flags import times_out

if TYPE_CHECKING:
    from livevirt.cluster.install import Waiting
    from livevirt.kube.client.remote import RemoteClient

_timeout = times_out("How long to wait for each step")


@click.command()
@cluster.flags(without=("-n",))
@click.option("--image", default="", metavar="IMAGE", help="The image of livevirt's components.")
@click.option(
    "--replicas", default=2, show_default=True, type=click.IntRange(min=0),
    help="How many pods each component has.",
)  # fmt: skip
@click.option(
    "--all-in-one", is_flag=True,
    help="Run all components in every pod, with one service account, for small clusters.",
)  # fmt: skip
@click.option(
    "--catalog/--no-catalog", default=True, show_default=True,
    help="Whether to install the common instance types and preferences.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print what would be applied; contact no cluster.")
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True,
    help="How --dry-run prints it.",
)  # fmt: skip
@click.option(
    "--adopt", is_flag=True,
    help="Take over CustomResourceDefinitions that something else has installed.",
)  # fmt: skip
@click.option(
    "--wait/--no-wait", default=True, show_default=True,
    help="Whether to wait for the components, and then create the KubeVirt object and the catalog.",
)  # fmt: skip
@click.option(
    "--migrate-only", is_flag=True,
    help="Only rewrite objects that are stored in an older version; apply nothing.",
)  # fmt: skip
@_timeout
def install(
    image: str,
    replicas: int,
    all_in_one: bool,
    catalog: bool,
    dry_run: bool,
    output: str,
    adopt: bool,
    wait: bool,
    migrate_only: bool,
    timeout: float | None,
) -> None:
    """Install livevirt on a Kubernetes cluster, or upgrade it.

    It applies a namespace, CustomResourceDefinitions, roles, the components controller, webhook,
    api and node, and then the KubeVirt object and the catalog. A KubeVirt object that exists is not
    changed. The node agents run on every node, privileged.

    \b
    livevirt install
    livevirt install --kubeconfig FILE --image registry.example/livevirt:1 --replicas 3
    livevirt install --dry-run -o yaml > livevirt.yaml
    livevirt install --migrate-only                      # after an upgrade by another tool
    """
    from livevirt.cluster import install as installation
    from livevirt.cluster import manifests

    options = manifests.InstallOptions(image or manifests.IMAGE, replicas, catalog, all_in_one)
    if dry_run:
        found = [*manifests.control_plane(options), *manifests.settings(options)]
        if output == "yaml":
            frame.print_yaml(found)
        else:
            click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}, indent=2))
        return

    async def work(client: RemoteClient, waiting: Waiting) -> None:
        if migrate_only:
            await installation.migrate_storage(client, waiting)
            return
        await installation.install(client, options, waiting, adopt=adopt, wait=wait)

    _run(work, timeout)
    if migrate_only:
        return
    click.echo("installed; see `livevirt status`" if wait else "applied")


@click.command()
@cluster.flags(without=("-n",))
@click.option(
    "--force", is_flag=True, help="Also delete VMs, instances and DataVolumes, with their disks."
)
@_timeout
def uninstall(force: bool, timeout: float | None) -> None:
    """Remove livevirt from a Kubernetes cluster, with all objects of its kinds.

    It refuses while VMs, instances or DataVolumes exist.

    \b
    livevirt uninstall
    livevirt uninstall --force --timeout 60
    """
    from livevirt.cluster import install as installation

    async def work(client: RemoteClient, waiting: Waiting) -> None:
        await installation.uninstall(client, waiting, force=force)

    _run(work, timeout)
    click.echo("uninstalled")


def _run(work: Callable[[RemoteClient, Waiting], Awaitable[None]], timeout: float | None) -> None:
    """Do the work on the cluster that the flags choose, and report what is done."""
    from livevirt.cluster.install import MANAGER, Waiting
    from livevirt.kube.client.remote import RemoteClient

    client = RemoteClient(cluster.component_access(cluster.chosen()), manager=MANAGER)

    async def run() -> None:
        try:
            await _check_server(client)
            await work(client, Waiting(timeout, lambda text: click.echo(text, err=True)))
        finally:
            await client.close()

    asyncio.run(run())


async def _check_server(client: RemoteClient) -> None:
    """Refuse the embedded server, which needs no installation."""
    from livevirt.cluster import status

    if status.is_embedded(await status.server_version(client)):
        raise click.UsageError(
            f"{client.access.server} is livevirt's embedded server, where everything is installed"
            " already; name a Kubernetes cluster with --kubeconfig"
        )
