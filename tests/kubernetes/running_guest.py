"""A VM whose guest runs, as far as the API server can see: its objects, made without a node."""

from __future__ import annotations

import json
from typing import Any

from livevirt.vm.lifecycle.vm.instances import instance_of, revision_of
from livevirt.vm.lifecycle.vmi.launcher import pod_of
from livevirt.vm.spec.resources import Namespace

from . import examples
from .cluster import KubernetesCluster

Object = dict[str, Any]
CONTROLLER = "system:serviceaccount:kubevirt:livevirt-controller"
AS_COMPONENT = (f"--as={CONTROLLER}", "--as-group=system:masters")
NODE = "hollow-1"
VOLUMES = ({"name": "root", "containerDisk": {"image": "registry:5000/guest:latest"}},)
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


def a_manifest(name: str, **template: Any) -> Object:
    """Return the manifest of a VM of one socket and 512Mi."""
    domain = {"cpu": {"sockets": 1}, "memory": {"guest": "512Mi"}}
    spec = examples.a_spec(VOLUMES, domain, **template)
    return examples.a_vm(name, spec) | {
        "spec": {"runStrategy": "Always", "template": {"spec": spec}}
    }


def write(cluster: KubernetesCluster, namespace: str, obj: Object) -> Object:
    """Create an object as a component of ours and return it as it is stored."""
    options = ("-n", namespace, "-o", "json", "-f", "-", *AS_COMPONENT)
    created: Object = json.loads(cluster.kubectl("create", *options, text=json.dumps(obj)))
    return created


def patch_status(cluster: KubernetesCluster, namespace: str, name: str, status: Object) -> None:
    """Change the status of an instance as a component of ours."""
    change = json.dumps({"status": status})
    options = ("-n", namespace, "--type=merge", "-p", change, *AS_COMPONENT)
    cluster.kubectl("patch", "vmi", name, *options)


def start(cluster: KubernetesCluster, namespace: str, manifest: Object) -> Object:
    """Apply a VM and make its revision, instance and pod as the controllers would."""
    name = manifest["metadata"]["name"]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", text=json.dumps(manifest))
    vm = cluster.get("vm", name, "-n", namespace)
    write(cluster, namespace, revision_of(vm))
    vmi = write(cluster, namespace, instance_of(vm))
    pod = pod_of(vmi, Namespace())
    pod["spec"] |= {"nodeName": NODE, "nodeSelector": {}, "tolerations": [{"operator": "Exists"}]}
    write(cluster, namespace, pod)
    domain = vmi["spec"]["domain"]
    patch_status(cluster, namespace, name, {
        "phase": "Running",
        "nodeName": NODE,
        "memory": {"guestCurrent": domain["memory"]["guest"]},
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "LiveMigratable", "status": "True"},
            {"type": "AgentConnected", "status": "True"},
        ],
    })  # fmt: skip
    cluster.kubectl(
        "wait", f"pod/{pod['metadata']['name']}", "-n", namespace,
        "--for=jsonpath={.status.phase}=Running", "--timeout=60s",
    )  # fmt: skip
    return vmi
