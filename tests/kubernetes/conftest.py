from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .cluster import KubernetesCluster, running_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[KubernetesCluster]:
    """Two real nodes and two hollow ones, shared by all tests, with an audit log."""
    name = f"test-{os.getpid()}"
    with running_cluster(name, "--nodes", "2", "--hollow", "2", "--audit") as started:
        yield started
