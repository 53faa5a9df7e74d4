"""A namespace of its own for each test that wants one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from ..server_process import ServerProcess

_numbers = itertools.count(1)


@pytest.fixture
def namespace(server: ServerProcess) -> Iterator[str]:
    """A new namespace, which is deleted afterwards."""
    name = f"test-{next(_numbers)}"
    server.kubectl("create", "namespace", name)
    yield name
    server.kubectl("delete", "namespace", name, "--wait=false")
