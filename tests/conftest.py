"""What every test may ask for: a running server, shared by all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from .server_process import ServerProcess, running_server

# How long an example takes says something about the machine, and nothing about the code.
settings.register_profile("livevirt", parent=settings(), deadline=None)
settings.load_profile("livevirt")


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    """A real server; each test works in a namespace of its own."""
    with running_server() as started:
        yield started
