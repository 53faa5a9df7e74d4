"""What a new installation starts with: the usual namespaces and roles, the KubeVirt object."""

from __future__ import annotations

import contextlib

from livevirt.errors import AlreadyExists
from livevirt.kube.client.interface import Client
from livevirt.kube.controllers.storage import storageclass
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

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

_VIEW = "instancetype.kubevirt.io:view"
#: Everybody may see the instance types and preferences that all share.
VIEW_ROLE: Object = {
    "apiVersion": core.CLUSTER_ROLE.api_version,
    "kind": core.CLUSTER_ROLE.kind,
    "metadata": {"name": _VIEW},
    "rules": [
        {
            "apiGroups": [kinds.CLUSTER_INSTANCETYPE.group],
            "resources": [
                kinds.CLUSTER_INSTANCETYPE.plural,
                kinds.CLUSTER_PREFERENCE.plural,
            ],
            "verbs": ["get", "list", "watch"],
        }
    ],
}
VIEW_BINDING: Object = {
    "apiVersion": core.CLUSTER_ROLE_BINDING.api_version,
    "kind": core.CLUSTER_ROLE_BINDING.kind,
    "metadata": {"name": _VIEW},
    "roleRef": {"kind": core.CLUSTER_ROLE.kind, "name": _VIEW},
    "subjects": [{"kind": "Group", "name": "system:authenticated"}],
}


async def ensure(client: Client) -> None:
    """Create what is missing; what is there belongs to its owner and is left alone."""
    for name in NAMESPACES:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        with contextlib.suppress(AlreadyExists):
            await client.create(core.NAMESPACE, space)
    with contextlib.suppress(AlreadyExists):
        await client.create(kinds.KUBEVIRT, KUBEVIRT, "kubevirt")
    for kind, obj in (
        (core.CLUSTER_ROLE, VIEW_ROLE),
        (core.CLUSTER_ROLE_BINDING, VIEW_BINDING),
    ):
        with contextlib.suppress(AlreadyExists):
            await client.create(kind, obj)
    await storageclass.ensure(client)
