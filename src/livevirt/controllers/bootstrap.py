"""What a new installation starts with: the usual namespaces and the KubeVirt object."""

from __future__ import annotations

import contextlib

from livevirt.api import registry
from livevirt.api.request import Object
from livevirt.client.interface import Client
from livevirt.controllers.volumes import storageclass
from livevirt.errors import AlreadyExists

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease", "kubevirt")

#: Visible and editable on purpose: what an administrator sees here is what is in force.
KUBEVIRT: Object = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
    "spec": {
        "configuration": {
            "developerConfiguration": {
                "featureGates": ["VMLiveUpdateFeatures", "HotplugVolumes", "InjectEjectCDROM"]
            },
            "vmRolloutStrategy": "LiveUpdate",
        }
    },
}


async def ensure(client: Client) -> None:
    """Create what is missing; what is there belongs to its owner and is left alone."""
    for name in NAMESPACES:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        with contextlib.suppress(AlreadyExists):
            await client.create(registry.NAMESPACE, space)
    with contextlib.suppress(AlreadyExists):
        await client.create(registry.KUBEVIRT, KUBEVIRT, "kubevirt")
    await storageclass.ensure(client)
