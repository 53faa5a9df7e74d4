"""Everything that `livevirt install` applies, as Kubernetes objects in the order to apply them.

`control_plane` comes first. `settings` are objects of our own kinds: they can only be created once
the webhook answers, which checks them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from livevirt import __version__
from livevirt.catalog import guests, series
from livevirt.cluster import api_manifests, crds, rbac, webhook_manifests
from livevirt.cluster.webhook_manifests import Endpoint
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm.config import controller as config
from livevirt.vm.config.settings import NAMESPACE

PART_OF = "app.kubernetes.io/part-of"
NAME, COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"
VERSION = "app.kubernetes.io/version"
PRODUCT = "livevirt"
PRIORITY = "kubevirt-cluster-critical"  # KubeVirt's name
IMAGE = f"localhost/livevirt:{__version__}"
LAUNCHER_IMAGE = "LIVEVIRT_LAUNCHER_IMAGE"  # the variable with the image of launcher pods

DEPLOYMENT = Kind("apps", "Deployment", "deployments", ("v1",), "")
SERVICE = Kind("", "Service", "services", ("v1",), "")
DISRUPTION_BUDGET = Kind("policy", "PodDisruptionBudget", "poddisruptionbudgets", ("v1",), "")
NETWORK_POLICY = Kind("networking.k8s.io", "NetworkPolicy", "networkpolicies", ("v1",), "")


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """What an administrator may choose."""

    image: str = IMAGE
    replicas: int = 2
    catalog: bool = True


@dataclass(frozen=True, slots=True)
class Workload:
    """One Deployment."""

    component: str  # its label, and the word after `livevirt` on its command line
    memory: str  # requested
    port: int
    scheme: str = "HTTPS"
    makes_pods: bool = False

    @property
    def name(self) -> str:
        """The name of the Deployment and its service account."""
        return f"{PRODUCT}-{self.component}"

    @property
    def selector(self) -> dict[str, str]:
        """The labels of its pods."""
        return {NAME: PRODUCT, COMPONENT: self.component}

    @property
    def command(self) -> list[str]:
        """The command line of its container."""
        return [PRODUCT, self.component, "--listen", f"0.0.0.0:{self.port}"]


WORKLOADS = (
    Workload("controller", "256Mi", 8080, "HTTP", makes_pods=True),
    Workload("webhook", "256Mi", webhook_manifests.PORT),
    Workload("api", "128Mi", api_manifests.PORT),
)


def control_plane(options: InstallOptions) -> list[Object]:
    """Return the objects that make a cluster serve and run our kinds."""
    endpoint = Endpoint()
    found = [
        config.NAMESPACE,
        _priority_class(),
        *crds.definitions(endpoint),
        *rbac.user_manifests(),
        *(each for component in rbac.COMPONENTS for each in rbac.component_manifests(component)),
    ]
    for workload in WORKLOADS:
        found += [
            _deployment(workload, options),
            _disruption_budget(workload),
            _network_policy(workload),
        ]
    found += [*webhook_manifests.manifests(endpoint), *api_manifests.manifests()]
    return [labelled(each) for each in found]


def settings(options: InstallOptions) -> list[Object]:
    """Return the KubeVirt object and the catalog of instance types and preferences."""
    sizes: Iterable[Object] = ()
    if options.catalog:
        sizes = (*series.instancetypes(), *guests.preferences())
    return [labelled(config.KUBEVIRT), *sizes]


def labelled(obj: Object) -> Object:
    """Return an object with the labels by which our own are found."""
    meta = obj["metadata"]
    labels = {NAME: PRODUCT, PART_OF: PRODUCT, **(meta.get("labels") or {})}
    return {**obj, "metadata": {**meta, "labels": labels}}


def _priority_class() -> Object:
    return {
        "apiVersion": core.PRIORITY_CLASS.api_version,
        "kind": core.PRIORITY_CLASS.kind,
        "metadata": {"name": PRIORITY},
        "value": 1_000_000_000,
        "globalDefault": False,
        "description": "The control plane of livevirt, without which VMs cannot be changed.",
    }


def _deployment(workload: Workload, options: InstallOptions) -> Object:
    strategy = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}, "type": "RollingUpdate"}
    return {
        "apiVersion": DEPLOYMENT.api_version,
        "kind": DEPLOYMENT.kind,
        "metadata": _meta(workload),
        "spec": {
            "replicas": options.replicas,
            "selector": {"matchLabels": workload.selector},
            "strategy": strategy,
            "template": {
                "metadata": {
                    "labels": {**workload.selector, PART_OF: PRODUCT, VERSION: __version__}
                },
                "spec": _pod(workload, options),
            },
        },
    }


def _pod(workload: Workload, options: InstallOptions) -> Object:
    return {
        "serviceAccountName": workload.name,
        "priorityClassName": PRIORITY,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": _spread(workload)},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [_container(workload, options)],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
    }


def _spread(workload: Workload) -> Object:
    """Return the rule that puts replicas on different nodes where there are several."""
    term = {
        "labelSelector": {"matchLabels": workload.selector},
        "topologyKey": "kubernetes.io/hostname",
    }
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"preferredDuringSchedulingIgnoredDuringExecution": preferred}


def _container(workload: Workload, options: InstallOptions) -> Object:
    found: Object = {
        "name": workload.component,
        "image": options.image,
        "imagePullPolicy": "IfNotPresent",
        "command": workload.command,
        "ports": [
            {"name": workload.scheme.lower(), "containerPort": workload.port, "protocol": "TCP"}
        ],
        "livenessProbe": _probe("/healthz", workload, 30),
        "readinessProbe": _probe("/readyz", workload, 5),
        "resources": {"requests": {"cpu": "50m", "memory": workload.memory}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    if workload.makes_pods:
        found["env"] = [{"name": LAUNCHER_IMAGE, "value": options.image}]
    return found


def _probe(path: str, workload: Workload, seconds: int) -> Object:
    request = {"path": path, "port": workload.port, "scheme": workload.scheme}
    return {"httpGet": request, "periodSeconds": seconds, "timeoutSeconds": 5}


def _disruption_budget(workload: Workload) -> Object:
    """Return the budget that keeps a drain from stopping all replicas of several."""
    return {
        "apiVersion": DISRUPTION_BUDGET.api_version,
        "kind": DISRUPTION_BUDGET.kind,
        "metadata": _meta(workload),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": workload.selector},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _network_policy(workload: Workload) -> Object:
    """Return the policy that opens one port only.

    Its clients, kube-apiserver and Prometheus, have no labels to select them by: each request is
    authenticated, or answered without secrets.
    """
    return {
        "apiVersion": NETWORK_POLICY.api_version,
        "kind": NETWORK_POLICY.kind,
        "metadata": _meta(workload),
        "spec": {
            "podSelector": {"matchLabels": workload.selector},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": workload.port, "protocol": "TCP"}]}],
        },
    }


def _meta(workload: Workload) -> Object:
    return {"name": workload.name, "namespace": NAMESPACE, "labels": workload.selector}
