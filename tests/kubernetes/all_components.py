"""All components in one process beside a test cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from livevirt.cluster import api_manifests, rbac
from livevirt.kube.objects.request import Object

from .cluster import KubernetesCluster, eventually, running_cluster, tool
from .component import at_hub, hub_address, running
from .webhook_process import WebhookProcess

WEBHOOK_PORT, API_PORT = 9443, 9444


@contextlib.contextmanager
def cluster_with_all_components(
    name: str, folder: Path, settings: Object, *options: str
) -> Iterator[KubernetesCluster]:
    """Run a cluster with these settings, and all components in one process of its network."""
    with running_cluster(name, "--nodes", "0", *options) as started:
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
            started.apply(settings)
            yield started
