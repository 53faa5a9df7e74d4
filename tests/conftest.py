"""What every test may ask for: a running server, shared by all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .server_process import ServerProcess, running_server


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    """A real server; each test works in a namespace of its own."""
    with running_server() as started:
        yield started
