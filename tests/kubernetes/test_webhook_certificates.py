"""The webhook's certificates: issued, published, shared by replicas and rotated under load."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from livevirt.cluster import certificates
from livevirt.cluster.certificates import Material
from livevirt.cluster.crds import CONVERTED

from . import examples
from .cluster import KubernetesCluster, eventually, tool
from .webhook_process import WebhookProcess, running_webhook

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="clusters need root for their namespaces"),
]

Object = dict[str, Any]
SECRET = ("secret", "livevirt-webhook-certificates", "-n", "kubevirt")
CONFIGURATIONS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")


OPTIONS = ("--ca-lifetime", "30s", "--certificate-lifetime", "15s")


@pytest.fixture(scope="module")
def rotating(
    control_plane: KubernetesCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebhookProcess]:
    """A webhook whose certificates last for seconds."""
    control_plane.run_kubectl("delete", *SECRET)
    log = tmp_path_factory.mktemp("rotating") / "log"
    with running_webhook(control_plane, log, options=OPTIONS) as started:
        yield started


@pytest.fixture(scope="module")
def replica(rotating: WebhookProcess) -> Iterator[WebhookProcess]:
    """A second webhook, which issues certificates as well."""
    other = WebhookProcess(rotating.cluster, rotating.log.with_name("replica"), 9444, OPTIONS)
    other.start()
    yield other
    other.stop()


def stored(cluster: KubernetesCluster) -> Material | None:
    secret = cluster.run_kubectl("get", *SECRET, "-o", "json")
    return certificates.from_secret(json.loads(secret.stdout)) if secret.stdout else None


def bundles(cluster: KubernetesCluster) -> set[bytes]:
    """Return the CA bundles that kube-apiserver verifies the webhook with."""
    configs = [
        webhook["clientConfig"]
        for kind in CONFIGURATIONS
        for webhook in cluster.get(kind, "livevirt-webhook")["webhooks"]
    ]
    for kind in CONVERTED:
        conversion = cluster.get("crd", kind.resource)["spec"]["conversion"]
        configs.append(conversion["webhook"]["clientConfig"])
    return {base64.b64decode(each.get("caBundle", "")) for each in configs}


def published(cluster: KubernetesCluster) -> bool:
    material = stored(cluster)
    return material is not None and bundles(cluster) == {material.trusted}


def write(cluster: KubernetesCluster) -> str:
    """Send writes that need admission and conversion; return why one was refused."""
    spec = {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}}
    api = "instancetype.kubevirt.io/v1beta1"
    manifests = (
        examples.a_vm("probe", examples.a_spec()),
        examples.other(api, "VirtualMachineInstancetype", "probe", spec),
    )
    text = "\n---\n".join(map(json.dumps, manifests))
    return cluster.run_kubectl("create", "--dry-run=server", "-f", "-", text=text).stderr


def served_by(webhook: WebhookProcess) -> bytes:
    """Return the certificate that a webhook serves."""
    script = f"import ssl; print(ssl.get_server_certificate(('127.0.0.1', {webhook.port})))"
    inside = ("exec", "--name", webhook.cluster.name, "--", sys.executable, "-c", script)
    return tool(*inside).stdout.strip().encode() + b"\n"


def test_given_two_replicas_and_writes_while_everything_rotates_then_none_fails(
    rotating: WebhookProcess, replica: WebhookProcess
) -> None:
    cluster = rotating.cluster
    assert eventually(lambda: published(cluster))
    first = stored(cluster)
    assert first is not None
    assert eventually(lambda: write(cluster) == "")
    deadline, served = time.monotonic() + 90, {first.serving.certificate}
    while time.monotonic() < deadline:
        assert write(cluster) == "", rotating.log.read_text()
        material = stored(cluster)
        assert material is not None
        served.add(material.serving.certificate)
        if material.authority != first.authority and len(served) > 2:
            break
    else:
        pytest.fail(f"the authority was not replaced: {rotating.log.read_text()}")
    assert eventually(lambda: published(cluster))

    def agree() -> bool:
        current = stored(cluster)
        return current is not None and {served_by(rotating), served_by(replica)} == {
            current.serving.certificate
        }

    assert eventually(agree)


def test_given_a_lost_secret_then_new_certificates_are_issued_and_published(
    rotating: WebhookProcess,
) -> None:
    cluster = rotating.cluster
    before = stored(cluster)
    cluster.kubectl("delete", *SECRET)
    assert eventually(lambda: published(cluster) and stored(cluster) != before)
    assert eventually(lambda: write(cluster) == "")


def test_given_a_removed_bundle_then_it_is_restored(rotating: WebhookProcess) -> None:
    cluster = rotating.cluster
    assert eventually(lambda: published(cluster))
    patch = json.dumps([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}])
    command = ("patch", CONFIGURATIONS[1], "livevirt-webhook", "--type=json", "-p", patch)
    cluster.kubectl(*command)
    assert eventually(lambda: published(cluster))
    assert eventually(lambda: write(cluster) == "")


def test_given_a_signal_then_it_ends_cleanly(rotating: WebhookProcess) -> None:
    assert rotating.stop() == 0
    assert "Traceback" not in rotating.log.read_text()
    assert "ERROR" not in rotating.log.read_text()
