"""All components in one process: webhook, controllers and API server work together."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from livevirt.cluster import api_manifests, rbac
from livevirt.vm.lifecycle.vmi_admission import FINALIZER

from .cluster import KubernetesCluster, eventually, running_cluster, tool
from .component import at_hub, hub_address, running, virtctl
from .controller_process import EMULATING
from .webhook_process import WebhookProcess

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root for their namespaces"),
]
WEBHOOK_PORT, API_PORT = 9443, 9444


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """A cluster of one hollow node with all components in one process of the hub."""
    folder = tmp_path_factory.mktemp("all")
    options = ("--nodes", "0", "--hollow", "1")
    with running_cluster(f"all-{os.getpid()}", *options) as started:
        started.kubectl("create", "namespace", "kubevirt")
        webhook = WebhookProcess(started, folder / "unused", WEBHOOK_PORT)
        webhook.install()
        started.apply(*api_manifests.manifests(), at_hub(started, api_manifests.NAME, API_PORT))
        kubeconfig = tool("kubeconfig", "--name", started.name, "--internal").stdout.strip()
        log = folder / "log"
        arguments = (
            "controller", "--all", "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:9442",
            "--webhook-listen", f"127.0.0.1:{WEBHOOK_PORT}", "--webhook-url", webhook.url,
            "--api-listen", f"{hub_address(started)}:{API_PORT}",
            "--as", rbac.CONTROLLER.user, "--as-group", "system:masters",
        )  # fmt: skip
        with running(started, log, *arguments):
            assert eventually(lambda: log.read_text().count("ready: http") == 3), log.read_text()
            started.wait("apiservice/v1.subresources.kubevirt.io", "condition=Available")
            started.apply(EMULATING)
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
