"""The KubeVirt object: created on the first start, and its status kept."""

from __future__ import annotations

import contextlib
import hashlib
from datetime import datetime
from typing import Any

import msgspec

from livevirt import __version__
from livevirt.errors import AlreadyExists, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.informer import Informer
from livevirt.kube.control.runtime import Runtime
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.request import Object, status_of
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


VERSION = f"v{__version__}"
REGISTRY = "livevirt"
#: What clients wait for before they use a cluster: type, status, reason and message.
_CONDITIONS = (
    ("Available", "True", "AllComponentsReady", "All components are ready."),
    ("Progressing", "False", "AllComponentsReady", "All components are ready."),
    ("Degraded", "False", "AllComponentsReady", "All components are ready."),
    ("Created", "True", "AllResourcesCreated", "All resources were created."),
)


class Settings:
    """Watches KubeVirt objects. There are no components to roll out, so it is done at once."""

    def __init__(self, client: Client, now: Now, informer: Informer) -> None:
        self._client, self._now, self._informer = client, now, informer
        self._controller = Controller("kubevirt", self.reconcile).watches(informer)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result:
        """Write the status of one object if it differs."""
        obj = self._informer.get(key)
        if obj is None or "deletionTimestamp" in obj["metadata"]:
            return DONE
        wanted, written = status(obj, self._now()), status_of(obj)
        changed = {name: value for name, value in wanted.items() if value != written.get(name)}
        if changed:
            version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            patch = {"metadata": version, "status": changed}
            with contextlib.suppress(NotFound):
                await self._client.patch(
                    kinds.KUBEVIRT, key.name, key.namespace, patch, subresource="status"
                )
        return DONE


def status(obj: Object, now: datetime) -> dict[str, Any]:
    """Return what the status of a KubeVirt object should say."""
    listed = status_of(obj).get("conditions") or []
    for type_, value, reason, message in _CONDITIONS:
        condition = conditions.condition(type_, value, reason, message)
        listed = conditions.with_condition(listed, condition, now)
    deployment = _deployment(obj)
    return {
        "phase": "Deployed",
        "conditions": listed,
        "defaultArchitecture": "amd64",
        "observedDeploymentID": deployment,
        "observedGeneration": obj["metadata"].get("generation", 0),
        "observedKubeVirtRegistry": REGISTRY,
        "observedKubeVirtVersion": VERSION,
        "operatorVersion": VERSION,
        "targetDeploymentID": deployment,
        "targetKubeVirtRegistry": REGISTRY,
        "targetKubeVirtVersion": VERSION,
    }


def _deployment(obj: Object) -> str:
    """Return an id that changes with what is deployed; settings are not part of it."""
    parts = [obj["metadata"].get("namespace", ""), REGISTRY, VERSION]
    return hashlib.sha1(msgspec.json.encode(parts), usedforsecurity=False).hexdigest()


async def run(runtime: Runtime) -> None:
    """Run the controller until cancelled; a factory for `embedded.run`."""
    informer = runtime.informers.of(kinds.KUBEVIRT)
    client = runtime.client.for_component("kubevirt-controller")
    await Settings(client, runtime.now, informer).run()
