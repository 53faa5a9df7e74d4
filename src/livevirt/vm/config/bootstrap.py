"""What a new installation starts with: the KubeVirt object, and the role to view instance types."""

from __future__ import annotations

import contextlib

from livevirt.errors import AlreadyExists
from livevirt.kube.client.interface import Client
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

NAMESPACE: Object = {
    "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubevirt"},
}  # fmt: skip
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
    for kind, obj, namespace in (
        (core.NAMESPACE, NAMESPACE, ""),
        (kinds.KUBEVIRT, KUBEVIRT, "kubevirt"),
        (core.CLUSTER_ROLE, VIEW_ROLE, ""),
        (core.CLUSTER_ROLE_BINDING, VIEW_BINDING, ""),
    ):
        with contextlib.suppress(AlreadyExists):
            await client.create(kind, obj, namespace)
