"""The control plane: etcd and Kubernetes' own servers, all in the hub's network namespace."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pki import Authority, create_service_account_key, write_kubeconfig
from processes import Process, start
from record import REGISTRY, Cluster

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
# The host path provisioner of the controller manager has this path built in.
HOST_PATH_VOLUMES = Path("/tmp/hostpath_pv")
# How often the controller manager looks at nodes. After its 5 s by default, a new node would get
# and lose the taint of a node that is not ready while tests run already.
NODE_MONITOR_SECONDS = 1
ADMISSION_PLUGINS = (
    "NodeRestriction",
    "LimitRanger",
    "ResourceQuota",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionWebhook",
)
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
STORAGE_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": "standard",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "kubernetes.io/host-path",
    "reclaimPolicy": "Delete",
}


@dataclass(frozen=True)
class Options:
    """What the user may change about the control plane."""

    audit: bool = False
    audit_policy: Path | None = None
    apiserver: Sequence[str] = ()
    controller_manager: Sequence[str] = ()
    scheduler: Sequence[str] = ()


def create_credentials(cluster: Cluster) -> None:
    """Create the authorities, certificates and kubeconfig files of all components."""
    cluster.pki.mkdir(parents=True, mode=0o700)
    authority = Authority.create(cluster.pki, "ca")
    service = "kubernetes.default.svc"
    names = ["localhost", "kubernetes", "kubernetes.default", service, f"{service}.cluster.local"]
    addresses = ["127.0.0.1", str(cluster.hub_address), str(cluster.services_network[1])]
    authority.issue("apiserver", "kube-apiserver", hosts=[*names, *addresses])
    authority.issue("apiserver-kubelet", "apiserver-kubelet", "system:masters")
    authority.issue("admin", "admin", "system:masters")
    authority.issue("hollow-nodes", "hollow-nodes", "system:masters")
    for component in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
        authority.issue(component, f"system:{component}")
    for node in cluster.node_names:
        hosts = [node, str(cluster.node_address(node))]
        authority.issue(node, f"system:node:{node}", "system:nodes", hosts)
    Authority.create(cluster.pki, "front-proxy-ca").issue("front-proxy", "front-proxy")
    create_service_account_key(cluster.pki)
    components = ("admin", "hollow-nodes", "kube-proxy", *COMPONENTS[2:])
    for user in (*components, *cluster.node_names):
        write_kubeconfig(cluster.pki / f"{user}.kubeconfig", cluster.server, cluster.pki, user)


def start_forwarder(cluster: Cluster, helper: Path) -> Cluster:
    """Make the API server reachable on the host's loopback; return the cluster with its port.

    The listening socket belongs to the host's network namespace, the forwarder to the hub's.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        cluster = replace(cluster, port=listener.getsockname()[1])
        descriptor = listener.fileno()
        argv = in_hub(cluster, helper, "forward", str(descriptor), "127.0.0.1:6443")
        start(cluster, "forward", argv, inherit=descriptor)
    server = f"https://127.0.0.1:{cluster.port}"
    write_kubeconfig(cluster.kubeconfig, server, cluster.pki, "admin")
    return cluster


def start_storage(
    cluster: Cluster, programs: Mapping[str, Path], options: Options
) -> tuple[Process, Process]:
    """Start etcd and the API server."""
    etcd = start(cluster, "etcd", in_hub(cluster, programs["etcd"], *_etcd_flags(cluster)))
    flags = [*_apiserver_flags(cluster), *_audit_flags(cluster, options), *options.apiserver]
    argv = in_hub(cluster, programs["kube-apiserver"], *flags)
    server = start(cluster, "kube-apiserver", argv)
    return etcd, server


def start_controllers(
    cluster: Cluster, programs: Mapping[str, Path], options: Options
) -> tuple[Process, Process]:
    """Start the controller manager and the scheduler; the API server has to be ready."""
    pki = cluster.pki
    name = "kube-controller-manager"
    flags = [
        *_client_flags(cluster, name),
        f"--root-ca-file={pki}/ca.crt",
        f"--service-account-private-key-file={pki}/sa.key",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--use-service-account-credentials=true",
        "--enable-hostpath-provisioner=true",
        f"--node-monitor-period={NODE_MONITOR_SECONDS}s",
        f"--service-cluster-ip-range={cluster.services_network}",
        *options.controller_manager,
    ]
    cluster.volumes.mkdir(exist_ok=True)
    argv = in_hub(cluster, *_with_volumes(cluster), programs[name], *flags)
    controllers = start(cluster, name, argv)
    name = "kube-scheduler"
    flags = [*_client_flags(cluster, name), *options.scheduler]
    return controllers, start(cluster, name, in_hub(cluster, programs[name], *flags))


def start_hollow_nodes(cluster: Cluster, programs: Mapping[str, Path]) -> Process:
    """Start the process that plays the hollow nodes."""
    flags = [
        f"--kubeconfig={cluster.pki}/hollow-nodes.kubeconfig",
        f"--count={cluster.hollow}",
    ]
    return start(cluster, "hollow-nodes", in_hub(cluster, programs["hollow-nodes"], *flags))


def _with_volumes(cluster: Cluster) -> list[str]:
    """Return the command that gives a program the cluster's volumes at the provisioner's path.

    Its mount namespace must not keep copies of clusters' network namespaces, which would
    outlive them.
    """
    script = (
        f"umount -q {REGISTRY}/*/namespaces/* 2>/dev/null;"
        f' mount --bind "$0" {HOST_PATH_VOLUMES} && exec "$@"'
    )
    unshare = ["unshare", "--mount", "--propagation", "private"]
    return [*unshare, "sh", "-c", script, str(cluster.volumes)]


def in_hub(cluster: Cluster, *argv: str | Path) -> list[str | Path]:
    """Return the command that runs a program in the hub's network namespace.

    `ip netns exec` would mount /sys again and so hide the cgroups.
    """
    return ["nsenter", f"--net={cluster.hub}", *argv]


def _etcd_flags(cluster: Cluster) -> list[str]:
    client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    return [
        f"--data-dir={cluster.data}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # nothing here has to survive a power failure
        "--log-level=warn",
    ]


def _apiserver_flags(cluster: Cluster) -> list[str]:
    pki = cluster.pki
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        "--secure-port=6443",
        "--bind-address=0.0.0.0",
        f"--advertise-address={cluster.hub_address}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki}/front-proxy.crt",
        f"--proxy-client-key-file={pki}/front-proxy.key",
        "--enable-aggregator-routing=true",
        f"--service-cluster-ip-range={cluster.services_network}",
        "--authorization-mode=Node,RBAC",
        f"--enable-admission-plugins={','.join(ADMISSION_PLUGINS)}",
        "--allow-privileged=true",
        "--profiling=false",
    ]


def _audit_flags(cluster: Cluster, options: Options) -> list[str]:
    policy = options.audit_policy
    if policy is None:
        if not options.audit:
            return []
        policy = cluster.data / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT_POLICY))
    return [f"--audit-policy-file={policy.resolve()}", f"--audit-log-path={cluster.audit_log}"]


def _client_flags(cluster: Cluster, component: str) -> list[str]:
    kubeconfig = cluster.pki / f"{component}.kubeconfig"
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]
