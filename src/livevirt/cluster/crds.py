"""CustomResourceDefinitions of KubeVirt's kinds for a real kube-apiserver."""

from __future__ import annotations

from livevirt.cluster.webhook_manifests import CONVERT_PATH, Endpoint
from livevirt.kube.objects import crds
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

#: Kinds whose versions differ, so that the webhook has to convert between them.
CONVERTED: tuple[Kind, ...] = tuple(kind for kind in kinds.KINDS if kind.conversion is not None)


def definitions(endpoint: Endpoint) -> list[Object]:
    """Return the definition of every kind; `endpoint` serves their conversion."""
    return [_definition(kind, endpoint) for kind in kinds.KINDS]


def _definition(kind: Kind, endpoint: Endpoint) -> Object:
    found = crds.definition(kind)
    if kind in CONVERTED:
        webhook = {
            "clientConfig": endpoint.client_config(CONVERT_PATH),
            "conversionReviewVersions": ["v1"],
        }
        found["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return found
