"""What tests of guests may ask for: one real server, shared by all of them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..scramble import recording
from . import many_disks as many_disks_vm
from .guest_host import IMAGE, GuestHost, image_missing, running_host


@pytest.fixture(scope="session")
def status_writers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file in which the server of `guest_host` records which component writes which status."""
    return tmp_path_factory.mktemp("writers") / "status"


@pytest.fixture(scope="session")
def guest_host(status_writers: Path) -> Iterator[GuestHost]:
    """A real server; each test names its own guests."""
    if not shutil.which("qemu-system-x86_64"):
        pytest.skip("QEMU is not installed")
    if image_missing():
        pytest.skip(f"image {IMAGE} is not imported: make setup does it")
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:  # for this server, and no other process
            patch.setenv(recording.FILE_VARIABLE, str(status_writers))
            host = stack.enter_context(running_host())
        yield host


@pytest.fixture(scope="session")
def many_disks(guest_host: GuestHost) -> Iterator[GuestHost]:
    """The server, with the VM that has a disk of every kind."""
    many_disks_vm.start(guest_host)
    yield guest_host
    guest_host.discard(many_disks_vm.NAME)
