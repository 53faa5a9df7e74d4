"""The pod of a node agent."""

from __future__ import annotations

from livevirt.kube.objects.request import Object

NAME, COMPONENT = "livevirt-node", "node"
KUBELET = "/var/lib/kubelet"
CGROUPS = "/sys/fs/cgroup"
DATA = "/var/lib/livevirt"
PORT = 8081
GUESTS_PORT = 8445  # where `livevirt api` reaches guests


def pod(image: str) -> Object:
    """Return the spec of a node agent's pod.

    It runs wherever guests may run, also on nodes that are drained or tainted: a guest that is
    still there needs its agent.
    """
    return {
        "serviceAccountName": NAME,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,  # guests run on without it
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "hostPID": True,  # QEMU's processes, and the file systems of their containers
        "containers": [_container(image)],
        "volumes": [
            _host_path("kubelet", KUBELET, "Directory"),
            _host_path("cgroups", CGROUPS, "Directory"),
            _host_path("data", DATA, "DirectoryOrCreate"),
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    }


def _container(image: str) -> Object:
    return {
        "name": COMPONENT,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            *("livevirt", "node", "--kubelet-root", KUBELET, "--data-dir", DATA),
            *("--metrics-listen", f"0.0.0.0:{PORT}", "--listen", f"0.0.0.0:{GUESTS_PORT}"),
        ],
        "env": [_field("NODE_NAME", "spec.nodeName"), _field("POD_IP", "status.podIP")],
        "ports": [
            {"name": "http", "containerPort": PORT, "protocol": "TCP"},
            {"name": "guests", "containerPort": GUESTS_PORT, "protocol": "TCP"},
        ],
        "livenessProbe": _probe("/healthz", 30),
        "readinessProbe": _probe("/readyz", 5),
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "securityContext": _security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            # What the kubelet mounts for pods must be seen here, too.
            {"name": "kubelet", "mountPath": KUBELET, "mountPropagation": "HostToContainer"},
            {"name": "cgroups", "mountPath": CGROUPS, "readOnly": True},
            {"name": "data", "mountPath": DATA},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _security() -> Object:
    """Return the security context.

    Capabilities alone are not enough: the block devices of claims and /dev/kvm can only be opened
    in a privileged container.
    """
    return {
        "privileged": True,
        "runAsUser": 0,
        "runAsGroup": 0,
        "runAsNonRoot": False,
        "readOnlyRootFilesystem": True,
    }


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _probe(path: str, seconds: int) -> Object:
    request = {"path": path, "port": PORT, "scheme": "HTTP"}
    return {"httpGet": request, "periodSeconds": seconds, "timeoutSeconds": 5}


def _host_path(name: str, path: str, kind: str) -> Object:
    return {"name": name, "hostPath": {"path": path, "type": kind}}
