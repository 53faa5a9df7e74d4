"""Everything that `livevirt install` applies, as Kubernetes objects in the order to apply them.

`control_plane` comes first. `settings` are objects of our own kinds: they can only be created once
the webhook answers, which checks them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from livevirt import __version__
from livevirt.catalog import guests, series
from livevirt.cluster import api_manifests, crds, node_manifests, rbac, webhook_manifests
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
POD_SECURITY = "pod-security.kubernetes.io/enforce"
PRIORITY = "kubevirt-cluster-critical"  # KubeVirt's name
ALL = "--all"  # of a controller that runs all components
IMAGE = f"localhost/livevirt:{__version__}"
LAUNCHER_IMAGE = "LIVEVIRT_LAUNCHER_IMAGE"  # the variable with the image of launcher pods

_DRAIN_SECONDS = 5  # until kube-proxy on every node has removed a pod from its Service

DEPLOYMENT = Kind("apps", "Deployment", "deployments", ("v1",), "")
DAEMON_SET = Kind("apps", "DaemonSet", "daemonsets", ("v1",), "")
SERVICE = Kind("", "Service", "services", ("v1",), "")
DISRUPTION_BUDGET = Kind("policy", "PodDisruptionBudget", "poddisruptionbudgets", ("v1",), "")
NETWORK_POLICY = Kind("networking.k8s.io", "NetworkPolicy", "networkpolicies", ("v1",), "")


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """What an administrator may choose."""

    image: str = IMAGE
    replicas: int = 2
    catalog: bool = True
    all_in_one: bool = False  # all components in every pod


@dataclass(frozen=True, slots=True)
class Workload:
    """One Deployment."""

    component: str  # its label, and the word after `livevirt` on its command line
    memory: str  # requested
    port: int
    scheme: str = "HTTPS"
    makes_pods: bool = False
    more: tuple[tuple[str, int], ...] = ()  # flags and ports of what else it serves by HTTPS

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
        command = [PRODUCT, self.component, "--listen", f"0.0.0.0:{self.port}"]
        for flag, port in self.more:
            command += [flag, f"0.0.0.0:{port}"]
        return [*command, ALL] if self.more else command

    @property
    def ports(self) -> dict[str, int]:
        """The ports of its container by name."""
        more = {flag.strip("-").partition("-")[0]: port for flag, port in self.more}
        return {self.scheme.lower(): self.port} | more


WORKLOADS = (
    Workload("controller", "256Mi", 8080, "HTTP", makes_pods=True),
    Workload("webhook", "256Mi", webhook_manifests.PORT),
    Workload("api", "128Mi", api_manifests.PORT),
)


ALL_IN_ONE = Workload(
    "controller", "384Mi", 8080, "HTTP", True,
    (("--webhook-listen", webhook_manifests.PORT), ("--api-listen", api_manifests.PORT + 1)),
)  # fmt: skip
_COMPONENTS_OF_ALL = (rbac.CONTROLLER, rbac.WEBHOOK, rbac.API)


def workloads(options: InstallOptions) -> tuple[Workload, ...]:
    """Return the Deployments to install."""
    return (ALL_IN_ONE,) if options.all_in_one else WORKLOADS


def control_plane(options: InstallOptions) -> list[Object]:
    """Return the objects that make a cluster serve and run our kinds."""
    endpoint, components = Endpoint(), rbac.COMPONENTS
    if options.all_in_one:
        others = (each for each in components if each not in _COMPONENTS_OF_ALL)
        components = (rbac.merged(*_COMPONENTS_OF_ALL), *others)
    found = [
        _namespace(),
        _priority_class(),
        *crds.definitions(endpoint),
        *rbac.user_manifests(),
        *(each for component in components for each in rbac.component_manifests(component)),
    ]
    for workload in workloads(options):
        found += [
            _deployment(workload, options),
            _disruption_budget(workload),
            _network_policy(workload),
        ]
    called = [*webhook_manifests.manifests(endpoint), *api_manifests.manifests()]
    if options.all_in_one:
        called = [_served_by_all(each) for each in called]
    return [labelled(each) for each in (*found, *called, _node_agents(options))]


def _served_by_all(obj: Object) -> Object:
    """Return a Service that leads to the pods with all components; any other object as it is."""
    if obj["kind"] != SERVICE.kind:
        return obj
    name = "api" if obj["metadata"]["name"] == api_manifests.NAME else "webhook"
    ports = [each | {"targetPort": ALL_IN_ONE.ports[name]} for each in obj["spec"]["ports"]]
    return {**obj, "spec": {"selector": ALL_IN_ONE.selector, "ports": ports}}


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


def _namespace() -> Object:
    """Return our namespace, which admits the privileged pods of node agents."""
    meta = {**config.NAMESPACE["metadata"], "labels": {POD_SECURITY: "privileged"}}
    return {**config.NAMESPACE, "metadata": meta}


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
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in workload.ports.items()
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
    if workload.scheme == "HTTPS" or workload.more:
        # kube-apiserver may still call a pod of a Service that has just been asked to end.
        found["lifecycle"] = {"preStop": {"sleep": {"seconds": _DRAIN_SECONDS}}}
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
    """Return the policy that opens the ports of a component only.

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
            "ingress": [
                {"ports": [{"port": port, "protocol": "TCP"} for port in workload.ports.values()]}
            ],
        },
    }


def _node_agents(options: InstallOptions) -> Object:
    """Return the DaemonSet of node agents."""
    selector = {NAME: PRODUCT, COMPONENT: node_manifests.COMPONENT}
    labels = {**selector, PART_OF: PRODUCT, VERSION: __version__}
    pod = {**node_manifests.pod(options.image), "priorityClassName": PRIORITY}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}
    return {
        "apiVersion": DAEMON_SET.api_version,
        "kind": DAEMON_SET.kind,
        "metadata": {"name": node_manifests.NAME, "namespace": NAMESPACE, "labels": selector},
        "spec": {
            "selector": {"matchLabels": selector},
            "updateStrategy": strategy,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _meta(workload: Workload) -> Object:
    return {"name": workload.name, "namespace": NAMESPACE, "labels": workload.selector}
