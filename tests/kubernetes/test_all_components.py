"""All components in one process: webhook, controllers and API server work together."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from livevirt.vm.lifecycle.vmi_admission import FINALIZER

from .all_components import cluster_with_all_components
from .cluster import KubernetesCluster, eventually
from .component import virtctl
from .controller_process import EMULATING

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root for their namespaces"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """A cluster of one hollow node with all components in one process of the hub."""
    folder = tmp_path_factory.mktemp("all")
    name = f"all-{os.getpid()}"
    with cluster_with_all_components(name, folder, EMULATING, "--hollow", "1") as started:
        yield started


def test_given_a_vm_then_webhook_controllers_and_api_do_their_part(
    cluster: KubernetesCluster,
) -> None:
    domain = {"cpu": {"sockets": 1}, "memory": {"guest": "256Mi"}, "devices": {}}
    vm = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "web"},
        "spec": {"runStrategy": "Always", "template": {"spec": {"domain": domain}}},
    }
    cluster.apply(vm)
    assert eventually(lambda: len(cluster.get("pods")["items"]) == 1)
    [pod] = cluster.get("pods")["items"]
    wanted = [f"{key}={value}" for key, value in pod["spec"]["nodeSelector"].items()]
    cluster.kubectl("label", "--overwrite", "node", "hollow-1", *wanted)

    def phase() -> str:
        found = cluster.run_kubectl("get", "vmi", "web", "-o", "json")
        return json.loads(found.stdout)["status"].get("phase", "") if not found.returncode else ""

    assert eventually(lambda: phase() == "Scheduled")
    vmi = cluster.get("vmi", "web")
    assert FINALIZER in vmi["metadata"]["finalizers"]
    assert vmi["spec"]["domain"]["cpu"]["maxSockets"] > 1, "the webhook sets defaults"
    stopped = virtctl(cluster.kubeconfig, "stop", "web")
    assert stopped.returncode == 0, stopped.stderr
    assert eventually(lambda: not cluster.get("vmi")["items"] and not cluster.get("pods")["items"])
    assert cluster.get("vm", "web")["spec"]["runStrategy"] == "Halted"
