"""Ten VMs started at once: all become ready, and the API stays quick and small meanwhile."""

from __future__ import annotations

import http.client
import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .guest_host import IMAGE, GuestHost, a_vm, image_missing, running_host, until

pytestmark = [
    pytest.mark.guest,
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

NAMES = [f"vm{number}" for number in range(10)]
SECONDS = 600.0
RESIDENT = 150 * 10**6  # bytes of the control plane, at most
QUICK = 0.1  # seconds, for 95 of 100 requests


class Reader(threading.Thread):
    """Asks for the list of VMs over one connection, again and again."""

    def __init__(self, host: GuestHost) -> None:
        super().__init__(daemon=True)
        url = urlsplit(host.server.url)
        assert url.hostname is not None
        self._connection = http.client.HTTPSConnection(
            url.hostname, url.port, context=host.context, timeout=60
        )
        self._over = threading.Event()
        self.seconds: list[float] = []

    def run(self) -> None:
        self._connection.connect()
        while not self._over.wait(0.05):
            began = time.monotonic()
            self._connection.request(
                "GET", "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
            )
            with self._connection.getresponse() as answer:
                assert answer.status == 200
                answer.read()
            self.seconds.append(time.monotonic() - began)

    def end(self) -> float:
        """Return how long 95 of 100 requests took at most."""
        self._over.set()
        self.join()
        self._connection.close()
        assert len(self.seconds) > 50
        return statistics.quantiles(self.seconds, n=20)[-1]


@pytest.fixture
def host() -> Iterator[GuestHost]:
    with running_host() as host:
        yield host


def resident(pid: int) -> int:
    """Return the bytes of memory a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the process has ended")


def ready(host: GuestHost, kind: str, condition: str) -> None:
    """Return once a condition holds of them all; one watch waits for it, to disturb little."""
    command = ("wait", kind, *NAMES, f"--for=condition={condition}", "--timeout=50s")
    until(f"{condition} of all", lambda: not host.server.run_kubectl(*command).returncode, SECONDS)


def test_ten_vms_at_once_become_ready_and_go_without_a_trace(host: GuestHost) -> None:
    reader = Reader(host)
    reader.start()
    try:
        host.apply(*[a_vm(name, memory="128Mi") for name in NAMES])
        ready(host, "vm", "Ready")
        ready(host, "vmi", "AgentConnected")
        assert {host.phase(name) for name in NAMES} == {"Running"}
        used = resident(host.server.pid)
    finally:
        slowest = reader.end()
    print(f"p95 {slowest * 1000:.1f} ms of {len(reader.seconds)}, {used / 10**6:.0f} MB resident")
    assert len({host.qemu(name) for name in NAMES}) == len(NAMES)
    assert used < RESIDENT
    assert slowest < QUICK
    host.delete(*NAMES)
    until("pods to go", lambda: not host.get("pod")["items"], 60)
    assert host.qemus() == []
    data = host.server.data
    until("files to go", lambda: not [*data.glob("run/*"), *data.glob("nodes/*/pods/*")], 60)
