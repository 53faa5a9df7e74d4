"""What a new API server starts with: the usual namespaces, priority and storage classes."""

from __future__ import annotations

import contextlib

from livevirt.errors import AlreadyExists
from livevirt.kube.client.interface import Client
from livevirt.kube.objects import core
from livevirt.kube.objects.priority import SYSTEM_CLASSES
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.storage import CLASS_NAME, DEFAULT_ANNOTATION, PROVISIONER, WAIT

DEFAULT: Object = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": CLASS_NAME, "annotations": {DEFAULT_ANNOTATION: "true"}},
    "provisioner": PROVISIONER,
    "reclaimPolicy": "Delete",
    "volumeBindingMode": WAIT,
    "allowVolumeExpansion": True,
}


async def ensure_storage_class(client: Client) -> None:
    """Create the class if it is missing; one that is there belongs to its owner."""
    with contextlib.suppress(AlreadyExists):
        await client.create(core.STORAGE_CLASS, DEFAULT)


NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


async def ensure(client: Client) -> None:
    """Create what is missing; what is there belongs to its owner and is left alone."""
    for name in NAMESPACES:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        with contextlib.suppress(AlreadyExists):
            await client.create(core.NAMESPACE, space)
    for each in SYSTEM_CLASSES.values():
        with contextlib.suppress(AlreadyExists):
            await client.create(core.PRIORITY_CLASS, each)
    await ensure_storage_class(client)
