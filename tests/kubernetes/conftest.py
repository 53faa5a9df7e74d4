from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .cluster import KubernetesCluster, running_cluster
from .controller_process import prepared_cluster
from .webhook_process import WebhookProcess, running_webhook


@pytest.fixture(scope="session")
def cluster() -> Iterator[KubernetesCluster]:
    """Two real nodes and two hollow ones, shared by all tests, with an audit log."""
    name = f"test-{os.getpid()}"
    with running_cluster(name, "--nodes", "2", "--hollow", "2", "--audit") as started:
        yield started


@pytest.fixture(scope="session")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """A cluster of hollow nodes for the controllers, with the bodies of writes in its audit log."""
    directory = tmp_path_factory.mktemp("controlled")
    with prepared_cluster(f"controlled-{os.getpid()}", directory) as started:
        yield started


@pytest.fixture(scope="session")
def control_plane() -> Iterator[KubernetesCluster]:
    """A cluster of hollow nodes only, for tests of definitions and webhooks."""
    options = ("--nodes", "0", "--hollow", "2", "--audit")
    with running_cluster(f"webhook-{os.getpid()}", *options) as started:
        started.kubectl("create", "namespace", "kubevirt")
        yield started


@pytest.fixture(scope="module")
def webhook(
    control_plane: KubernetesCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebhookProcess]:
    """The webhook, with everything that makes the cluster call it."""
    log = tmp_path_factory.mktemp("webhook") / "log"
    with running_webhook(control_plane, log) as started:
        yield started
