"""The StorageClass every installation starts with, and what its provisioner offers."""

from __future__ import annotations

import contextlib

from livevirt.errors import AlreadyExists
from livevirt.kube.admission.storageclasses import DEFAULT_ANNOTATION
from livevirt.kube.client.interface import Client
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object

NAME = "livevirt"
PROVISIONER = "livevirt.io/directory"
WAIT = "WaitForFirstConsumer"
#: Every logical node is this machine and sees the same directories, so all may share a volume.
ACCESS_MODES = ("ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany")
VOLUME_MODE = "Filesystem"  # unless a claim asks for a block device

DEFAULT: Object = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": NAME, "annotations": {DEFAULT_ANNOTATION: "true"}},
    "provisioner": PROVISIONER,
    "reclaimPolicy": "Delete",
    "volumeBindingMode": WAIT,
    "allowVolumeExpansion": True,
}


async def ensure(client: Client) -> None:
    """Create the class if it is missing; one that is there belongs to its owner."""
    with contextlib.suppress(AlreadyExists):
        await client.create(core.STORAGE_CLASS, DEFAULT)


def is_ours(storage_class: Object) -> bool:
    """Tell whether volumes of the class are made by us."""
    return bool(storage_class.get("provisioner") == PROVISIONER)


def waits(storage_class: Object | None) -> bool:
    """Tell whether claims of the class are bound only when something uses them."""
    return storage_class is not None and storage_class.get("volumeBindingMode") == WAIT
