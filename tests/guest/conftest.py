"""What tests of guests may ask for: one real server, shared by all of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from . import many_disks as many_disks_vm
from .guest_host import IMAGE, GuestHost, image_missing, running_host


@pytest.fixture(scope="session")
def guest_host() -> Iterator[GuestHost]:
    """A real server; each test names its own guests."""
    if not shutil.which("qemu-system-x86_64"):
        pytest.skip("QEMU is not installed")
    if image_missing():
        pytest.skip(f"image {IMAGE} is not imported: make setup does it")
    with running_host() as host:
        yield host


@pytest.fixture(scope="session")
def many_disks(guest_host: GuestHost) -> Iterator[GuestHost]:
    """The server, with the VM that has a disk of every kind."""
    many_disks_vm.start(guest_host)
    yield guest_host
    guest_host.discard(many_disks_vm.NAME)
