"""The aggregated API server as Kubernetes objects: its Service and how it is registered."""

from __future__ import annotations

from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import NAMESPACE
from livevirt.vm.kinds import subresources

NAME = "livevirt-api"
PORT = 8443  # of the pods; the Service has 443
LABELS = {"app.kubernetes.io/name": "livevirt", "app.kubernetes.io/component": "api"}
SERVER_NAMES = (f"{NAME}.{NAMESPACE}.svc", f"{NAME}.{NAMESPACE}")
API_SERVICE = Kind(
    "apiregistration.k8s.io", "APIService", "apiservices", ("v1",), "", namespaced=False
)


def manifests() -> list[Object]:
    """Return the objects that make kube-apiserver pass requests on."""
    return [service(), *(api_service(version) for version in subresources.VERSIONS)]


def service() -> Object:
    """Return the Service in front of the pods."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": LABELS},
        "spec": {
            "selector": LABELS,
            "ports": [{"name": "https", "port": 443, "targetPort": PORT, "protocol": "TCP"}],
        },
    }


def registration_name(version: str) -> str:
    """Return the name of the APIService of a version."""
    return f"{version}.{subresources.GROUP}"


def api_service(version: str) -> Object:
    """Return the registration of a version; the component itself fills in its CA bundle."""
    preferred = len(subresources.VERSIONS) - subresources.VERSIONS.index(version)
    return {
        "apiVersion": API_SERVICE.api_version,
        "kind": API_SERVICE.kind,
        "metadata": {"name": registration_name(version), "labels": LABELS},
        "spec": {
            "group": subresources.GROUP,
            "version": version,
            "groupPriorityMinimum": 1000,
            "versionPriority": 10 + preferred,
            "service": {"name": NAME, "namespace": NAMESPACE, "port": 443},
        },
    }
