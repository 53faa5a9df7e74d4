"""Another user of the machine, who tries to read the files of guests and of the server."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..guest.guest_host import GuestHost, a_vm, until
from ..server_process import BIN, ServerProcess, short_directory

STRANGER = 54321  # a UID that owns nothing
IMAGE = "example/empty:1"

_TRY = """
import json, os, sys
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
opened = []
for path in json.load(sys.stdin):
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        continue
    opened.append(path)
print(json.dumps(opened))
"""


def everything(root: Path) -> list[Path]:
    """Return all files and directories at and below `root`."""
    found = [root]
    for folder, folders, files in os.walk(root):
        found += (Path(folder) / name for name in (*folders, *files))
    return found


def exposed(root: Path) -> dict[str, str]:
    """Return the modes of files that others may read or write, and of directories they may list."""
    found = {}
    for path in everything(root):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            continue
        allowed = 0o111 if stat.S_ISDIR(mode) else 0
        if stat.S_IMODE(mode) & 0o007 & ~allowed:
            found[str(path)] = oct(stat.S_IMODE(mode))
    return found


def opened_by(uid: int, paths: list[Path]) -> list[str]:
    """Return the paths that a process of another user can open."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _TRY.format(uid=uid)],
        input=json.dumps([str(path) for path in paths]), capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.fixture
def careless() -> Iterator[None]:
    """The umask of most users, under which files are readable by everybody."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def host(careless: None) -> Iterator[GuestHost]:
    if os.geteuid() != 0:
        pytest.skip("acting as another user needs root")
    if not shutil.which("qemu-system-x86_64"):
        pytest.skip("QEMU is not installed")
    with short_directory() as home:
        home.chmod(0o711)
        store = home / "images"
        disk = home / "empty.raw"
        disk.write_bytes(bytes(1 << 20))
        subprocess.run(
            [BIN / "livevirt", "image", "import", disk, "--name", IMAGE, "--image-store", store],
            check=True, capture_output=True,
        )  # fmt: skip
        server = ServerProcess(home, flags=("--image-store", str(store)))
        found = GuestHost(server)
        try:
            server.start()
            yield found
        finally:
            found.end()


def a_vm_with_every_disk(name: str) -> dict[str, object]:
    vm = a_vm(name)
    spec = vm["spec"]["template"]["spec"]
    spec["volumes"] = [
        {"name": "root", "containerDisk": {"image": IMAGE}},
        {"name": "extra", "emptyDisk": {"capacity": "8Mi"}},
        {"name": "init", "cloudInitNoCloud": {"userData": "#cloud-config\npassword: secret\n"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    spec["domain"]["devices"]["disks"] = [
        {"name": each["name"], "disk": {"bus": "virtio"}} for each in spec["volumes"]
    ]
    return vm


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Mi"}}},
}


@pytest.mark.guest
def test_given_a_running_guest_then_another_user_can_open_none_of_its_files(
    host: GuestHost,
) -> None:
    host.apply(CLAIM, a_vm_with_every_disk("web"))
    until("a guest", lambda: host.phase("web") == "Running")
    data, store = host.server.data, host.server.home / "images"
    paths = everything(data) + everything(store)
    assert {"root.qcow2", "extra.img", "init.iso", "disk.img", "index.json"} <= {
        path.name for path in paths
    }
    assert exposed(data) == {}
    assert exposed(store) == {}
    assert opened_by(STRANGER, paths) == []


def test_given_a_detached_server_then_its_files_and_its_log_are_private(careless: None) -> None:
    with short_directory() as home:
        home.chmod(0o711)
        data = home / "srv" / "data"
        flags = ("--data-dir", str(data))
        started = [BIN / "livevirt", "up", *flags, "--listen", "127.0.0.1:0", "--detach"]
        subprocess.run(started, check=True, capture_output=True, timeout=60)
        try:
            assert (data / "livevirt.log").exists()
            assert exposed(data) == {}
            assert stat.S_IMODE((home / "srv").stat().st_mode) == 0o711  # QEMU must pass through
        finally:
            subprocess.run(
                [BIN / "livevirt", "down", *flags], check=True, capture_output=True, timeout=60
            )
