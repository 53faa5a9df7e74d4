"""What a new API server starts with: the usual namespaces and a storage class."""

from __future__ import annotations

import contextlib

from livevirt.errors import AlreadyExists
from livevirt.kube.client.interface import Client
from livevirt.kube.controllers.storage import storageclass
from livevirt.kube.objects import core

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


async def ensure(client: Client) -> None:
    """Create what is missing; what is there belongs to its owner and is left alone."""
    for name in NAMESPACES:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        with contextlib.suppress(AlreadyExists):
            await client.create(core.NAMESPACE, space)
    await storageclass.ensure(client)
