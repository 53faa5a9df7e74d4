"""`livevirt status` of a Kubernetes cluster."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from livevirt.cli import cluster
from livevirt.paths import DataDir

if TYPE_CHECKING:
    from livevirt.kube.client.access import Access


def chosen_cluster(data: DataDir, env: Mapping[str, str] = os.environ) -> Access | None:
    """Return the cluster that the flags or the environment name, None if it is our own server."""
    choice = cluster.chosen()
    named = choice.kubeconfig or env.get("KUBECONFIG", "")
    if not (named or choice.context or choice.server):
        return None
    if named and os.path.realpath(named) == os.path.realpath(data.kubeconfig):
        return None
    return cluster.component_access(choice, env)


def show(access: Access, output: str) -> None:
    """Print what a cluster shows of livevirt; exit with 1 if there is a problem."""
    from livevirt.cluster import status
    from livevirt.kube.client.remote import RemoteClient

    async def observe() -> status.ClusterSnapshot:
        client = RemoteClient(access, manager="livevirt-status")
        try:
            return await status.observe(client, datetime.now(UTC))
        finally:
            await client.close()

    snapshot = asyncio.run(observe())
    if snapshot.embedded:
        click.echo(f"running: {access.server}, the embedded server {snapshot.kubernetes}")
        return
    if output == "json":
        click.echo(json.dumps(status.document(snapshot), indent=2))
    else:
        for line in status.lines(snapshot):
            click.echo(line)
    if status.problems(snapshot):
        raise click.exceptions.Exit(1)
