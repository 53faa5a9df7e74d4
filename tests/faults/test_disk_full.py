"""A server whose disk is full, or whose database another process has locked."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ..guest.guest_host import GuestHost, a_bare_vm
from ..server_process import BIN
from .small_disk import SmallDisk, small_disk, until

RETRYABLE = {503, 507}


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    with small_disk(96) as found:
        yield found


def test_given_a_full_disk_then_requests_are_answered_and_space_cures_it(disk: SmallDisk) -> None:
    pid = disk.server.pid
    until("the server to be ready", lambda: disk.ready()[0] == 200)
    until("the reserve", (disk.server.data / "reserve").exists)
    assert disk.create("before")[0] == 201
    disk.fill()

    acknowledged = {"before"}
    for number in range(20):  # the reserve takes some, and is then kept for other writes
        status, answer = disk.create(f"full-{number}")
        if status == 201:
            acknowledged.add(f"full-{number}")
        else:
            assert (status, answer["reason"]) == (507, "InsufficientStorage")
            assert answer["details"]["retryAfterSeconds"]
    assert status == 507
    assert acknowledged <= disk.names()

    deleted, _ = disk.request("DELETE", "/api/v1/namespaces/default/configmaps/before")
    assert deleted == 200
    disk.fill()  # now the reserve is gone, too
    for number in range(5):
        status, answer = disk.create(f"fuller-{number}", 100_000)
        assert status == 507, answer
    assert "before" not in disk.names()

    disk.ballast.unlink()
    until("a write", lambda: disk.create(f"after-{time.monotonic()}")[0] == 201)
    until("the server to be ready again", lambda: disk.ready()[0] == 200)
    until("the reserve to be back", (disk.server.data / "reserve").exists)
    assert acknowledged - {"before"} <= disk.names()
    assert disk.server.alive()
    assert disk.server.pid == pid


def test_given_a_full_disk_then_the_server_can_be_started_again(disk: SmallDisk) -> None:
    until("the reserve", (disk.server.data / "reserve").exists)
    assert disk.create("before")[0] == 201
    disk.fill()
    disk.server.kill()
    disk.server.start()
    assert disk.names() >= {"before"}
    assert disk.request("DELETE", "/api/v1/namespaces/default/configmaps/before")[0] == 200


# ------------------------------------------------------------ a lock


@contextmanager
def locked(disk: SmallDisk, seconds: float) -> Iterator[None]:
    """Lock the database as another process does, for so long."""
    script = (
        "import sqlite3, sys, time; d = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "d.execute('PRAGMA busy_timeout = 10000'); d.execute('BEGIN IMMEDIATE');"
        "print('locked', flush=True); time.sleep(float(sys.argv[2]))"
    )
    command = [BIN / "python", "-c", script, disk.server.data / "livevirt.db", str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield
        process.wait()


@pytest.mark.parametrize("seconds", [7, pytest.param(30, marks=pytest.mark.long)])
@pytest.mark.slow
def test_given_a_locked_database_then_writes_wait_or_are_refused_and_nothing_ends(
    disk: SmallDisk, seconds: int
) -> None:
    until("the server to be ready", lambda: disk.ready()[0] == 200)
    pid = disk.server.pid
    answers = {}

    def write(name: str) -> None:
        answers[name] = disk.create(name)[0]

    with locked(disk, seconds):
        began = time.monotonic()
        writers = [threading.Thread(target=write, args=(f"held-{n}",)) for n in range(3)]
        for each in writers:
            each.start()
        assert disk.names() is not None  # reads are answered meanwhile
        assert time.monotonic() - began < 4
        for each in writers:
            each.join()
        assert set(answers.values()) <= RETRYABLE
        status, text = disk.ready()  # which tests a write
        assert (status, "[-]storage failed" in text) == (503, True)
        assert disk.request("GET", "/livez")[0] == 200
    until("a write", lambda: disk.create(f"after-{time.monotonic()}")[0] == 201, 10)
    until("the server to be ready again", lambda: disk.ready()[0] == 200)
    assert disk.names().isdisjoint(answers)
    assert disk.server.pid == pid
    assert disk.server.alive()


def test_given_a_short_lock_then_writes_wait_for_it(disk: SmallDisk) -> None:
    with locked(disk, 2):
        assert disk.create("patient")[0] == 201


# ------------------------------------------------------------ guests


@pytest.mark.guest
@pytest.mark.slow
def test_given_a_full_disk_then_down_still_stops_the_guests() -> None:
    with small_disk(96) as disk:
        host = GuestHost(disk.server)
        try:
            host.apply(a_bare_vm("web"))
            until("a guest", lambda: host.phase("web") == "Running", 120)
            assert len(host.qemus("web")) == 1
            (disk.server.data / "reserve").unlink(missing_ok=True)
            disk.fill()
            command = [BIN / "livevirt", "down", "--data-dir", disk.server.data, "--guests", "stop"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            assert "Traceback" not in done.stderr
            assert host.qemus() == []
        finally:
            host.end()


# ------------------------------------------------------------ what is admitted


def pressure(disk: SmallDisk) -> str:
    found, node = disk.request("GET", "/api/v1/nodes/node01")
    listed = (node.get("status") or {}).get("conditions") or [] if found == 200 else []
    return next((each["status"] for each in listed if each["type"] == "DiskPressure"), "")


@pytest.mark.slow
def test_given_a_disk_that_is_nearly_full_then_the_node_has_disk_pressure(
    disk: SmallDisk,
) -> None:
    until("a node", lambda: pressure(disk) == "False")
    disk.fill()
    until("pressure", lambda: pressure(disk) == "True", 30)
    _, node = disk.request("GET", "/api/v1/nodes/node01")
    assert [each["key"] for each in node["spec"]["taints"]] == ["node.kubernetes.io/disk-pressure"]
    disk.ballast.unlink()
    until("no pressure", lambda: pressure(disk) == "False", 30)
    _, node = disk.request("GET", "/api/v1/nodes/node01")
    assert not node["spec"].get("taints")


def a_claim(name: str, size: str) -> dict[str, object]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": name, "annotations": BIND_NOW}, "spec": spec}


BIND_NOW = {"cdi.kubevirt.io/storage.bind.immediate.requested": "true"}


def test_given_claims_beyond_the_disk_then_no_volume_is_made_for_them(disk: SmallDisk) -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    for name, size in (("fits", "100Mi"), ("beyond", "100Mi")):  # the limit is 192Mi
        status, answer = disk.request("POST", claims, a_claim(name, size))
        assert status == 201, answer
        until("a decision", lambda: decided(disk, name))  # noqa: B023 - at once
    assert [phase(disk, name) for name in ("fits", "beyond")] == ["Bound", "Pending"]
    assert disk.request("DELETE", f"{claims}/fits")[0] == 200
    until("its space", lambda: phase(disk, "beyond") == "Bound")


def phase(disk: SmallDisk, name: str) -> str:
    _, claim = disk.request("GET", f"/api/v1/namespaces/default/persistentvolumeclaims/{name}")
    return str((claim.get("status") or {}).get("phase"))


def decided(disk: SmallDisk, name: str) -> bool:
    _, events = disk.request("GET", "/api/v1/namespaces/default/events")
    reasons = ("ProvisioningSucceeded", "ProvisioningFailed")
    return any(
        each["involvedObject"]["name"] == name and each["reason"] in reasons
        for each in events["items"]
    )
