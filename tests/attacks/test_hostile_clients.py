"""Clients who open many connections, send slowly, read nothing, or send what takes long to read."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from livevirt.kube.server import connections

from ..server_process import ServerProcess, running_server

SECONDS = 60.0
#: How long others may wait on a busy machine. What is attacked here used to take 19 to 84 s.
PATIENCE = 4.0


@pytest.fixture(scope="module")
def target() -> Iterator[ServerProcess]:
    with running_server() as started:
        yield started


def connect(server: ServerProcess, context: ssl.SSLContext) -> ssl.SSLSocket:
    url = urlsplit(server.url)
    plain = socket.create_connection((url.hostname, url.port), timeout=SECONDS)
    return context.wrap_socket(plain, server_hostname=url.hostname)


def ask(
    server: ServerProcess,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any, float]:
    """Return the status, the decoded body and how long it took, for the administrator."""
    url = urlsplit(server.url)
    began = time.monotonic()
    connection = http.client.HTTPSConnection(
        url.hostname or "", url.port, context=server.admin(), timeout=SECONDS
    )
    with contextlib.closing(connection):
        connection.request(method, path, body, headers or {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    is_json = answer.headers.get_content_type() == "application/json"
    return answer.status, json.loads(text) if is_json else text, time.monotonic() - began


class Bystander:
    """Another client, who asks all the time and notes the longest wait."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.longest = 0.0

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        url = urlsplit(self._server.url)
        connection = http.client.HTTPSConnection(
            url.hostname or "", url.port, context=self._server.admin(), timeout=SECONDS * 2
        )
        with contextlib.closing(connection):
            while not self._stop.is_set():
                began = time.monotonic()
                connection.request("GET", "/livez")
                connection.getresponse().read()
                self.longest = max(self.longest, time.monotonic() - began)


def memory(server: ServerProcess) -> int:
    """Return the resident memory of the server, in MiB."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


# ------------------------------------------------------------ what takes long to read


def a_vm_with(disks: int) -> bytes:
    names = [f"d{number}" for number in range(disks)]
    devices = {"disks": [{"name": name, "disk": {"bus": "virtio"}} for name in names]}
    volumes = [{"name": name, "emptyDisk": {"capacity": "1Mi"}} for name in names]
    spec = {"domain": {"memory": {"guest": "64Mi"}, "devices": devices}, "volumes": volumes}
    vm = {
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "many"},
        "spec": {"runStrategy": "Halted", "template": {"spec": spec}},
    }  # fmt: skip
    return json.dumps(vm).encode()


VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
MAPS = "/api/v1/namespaces/default/configmaps"


def duplicates() -> bytes:
    members = ",".join(f'"k{number}":"","k{number}":""' for number in range(60_000))
    return b'{"metadata":{"name":"twice"},"data":{%b}}' % members.encode()


def yaml_lines() -> bytes:
    lines = "".join(f"  key-{number}: value\n" for number in range(140_000))
    return f"metadata:\n  name: long\ndata:\n{lines}".encode()[: 3 << 20]


BODIES = {
    "30,000 disks": (VMS, a_vm_with(26_000), "application/json"),
    "60,000 duplicate keys": (MAPS, duplicates(), "application/json"),
    "3 MiB of YAML": (MAPS, yaml_lines(), "application/yaml"),
}


@pytest.mark.parametrize(("path", "body", "kind"), BODIES.values(), ids=BODIES)
def test_given_a_body_that_takes_long_then_others_are_answered(
    target: ServerProcess, path: str, body: bytes, kind: str
) -> None:
    assert len(body) <= 3 << 20
    with Bystander(target) as other:
        status, answer, taken = ask(target, "POST", path, body, {"Content-Type": kind})
    assert status < 500, answer
    assert other.longest < PATIENCE
    assert taken < 4 * PATIENCE


def test_given_a_thousand_warnings_then_few_are_sent(target: ServerProcess) -> None:
    members = ",".join(f'"unknown-{number}":1' for number in range(1000))
    body = b'{"metadata":{"name":"w"},%b}' % members.encode()
    url = urlsplit(target.url)
    connection = http.client.HTTPSConnection(
        url.hostname or "", url.port, context=target.admin(), timeout=SECONDS
    )
    with contextlib.closing(connection):
        path = f"{MAPS}?dryRun=All&fieldValidation=Warn"
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        warnings = answer.headers.get_all("Warning") or []
    assert answer.status == 201
    assert 0 < len(warnings) <= 65
    assert sum(map(len, warnings)) < 5000


# ------------------------------------------------------------ who reads nothing


def test_given_unread_pipelined_answers_then_memory_is_bounded(target: ServerProcess) -> None:
    ask(target, "POST", MAPS, json.dumps(
        {"metadata": {"name": "big"}, "data": {"text": "x" * 60_000}}
    ).encode())  # fmt: skip
    before = memory(target)
    request = f"GET {MAPS}/big HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 20_000
    with connect(target, target.admin()) as attacker:
        attacker.settimeout(3)
        with contextlib.suppress(TimeoutError, OSError):  # the server stops reading
            attacker.sendall(request)
        assert memory(target) - before < 100
        assert ask(target, "GET", "/livez")[0] == 200


@pytest.mark.slow
def test_given_an_unread_watch_then_memory_is_bounded(target: ServerProcess) -> None:
    with connect(target, target.admin()) as attacker:
        attacker.sendall(f"GET {MAPS}?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        before = memory(target)
        text = "x" * 1_000_000
        for number in range(120):
            patch = json.dumps({"data": {"text": text, "number": str(number)}}).encode()
            kind = {"Content-Type": "application/merge-patch+json"}
            status, answer, _ = ask(target, "PATCH", f"{MAPS}/kube-root", patch, kind)
            if status == 404:
                made = {"metadata": {"name": "kube-root"}, "data": {"text": text}}
                status, answer, _ = ask(target, "POST", MAPS, json.dumps(made).encode())
            assert status < 300, answer
        # 16 MiB of this watch, 8 MiB of events kept in memory, and what the database has cached.
        assert memory(target) - before < 90
    assert ask(target, "DELETE", f"{MAPS}/kube-root")[0] == 200


# ------------------------------------------------------------ connections


def test_given_a_client_that_sends_nothing_then_it_is_disconnected(target: ServerProcess) -> None:
    with connect(target, target.trust()) as silent, connect(target, target.trust()) as slow:
        began = time.monotonic()
        slow.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        for each in (silent, slow):
            each.settimeout(connections.HEADER_SECONDS + 10)
            with contextlib.suppress(ConnectionResetError, ssl.SSLError):
                assert each.recv(1) == b""
        assert time.monotonic() - began < connections.HEADER_SECONDS + 10


@pytest.mark.slow
def test_given_many_connections_then_certificate_holders_are_still_served(
    target: ServerProcess,
) -> None:
    limits = Path(f"/proc/{target.pid}/limits").read_text()
    files = int(limits.partition("Max open files")[2].split()[0])
    assert files >= min(65536, int(limits.partition("Max open files")[2].split()[1]))
    with contextlib.ExitStack() as stack:
        context = target.trust()
        refused = 0
        for _ in range(connections.MOST_OF_PEER + 50):
            try:
                opened = stack.enter_context(connect(target, context))
                opened.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                if not opened.recv(1):
                    refused += 1
            except OSError:
                refused += 1
        assert refused >= 50
        assert ask(target, "GET", "/api/v1/namespaces/default")[0] == 200
    assert ask(target, "GET", "/livez")[0] == 200


# ------------------------------------------------------------ browsers

FOREIGN = {
    "a name that was rebound": {"Host": "attacker.example:6443"},
    "another site": {"Origin": "https://attacker.example"},
    "a page without an origin": {"Origin": "null"},
    "a request across sites": {"Sec-Fetch-Site": "cross-site"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_given_a_browser_on_a_foreign_page_then_it_is_refused(
    target: ServerProcess, headers: dict[str, str]
) -> None:
    status, answer, _ = ask(target, "GET", "/api/v1/namespaces", None, headers)
    assert (status, answer["reason"]) == (403, "Forbidden")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
def test_given_the_content_type_of_a_form_then_it_is_refused(
    target: ServerProcess, kind: str
) -> None:
    body = b'{"metadata":{"name":"form"}}'
    status, answer, _ = ask(target, "POST", MAPS, body, {"Content-Type": kind})
    assert (status, answer["reason"]) == (415, "UnsupportedMediaType")


def test_given_own_names_then_requests_are_answered(target: ServerProcess) -> None:
    port = urlsplit(target.url).port
    for host in ("localhost", "127.0.0.1", "[::1]", "kubernetes.default.svc", "LOCALHOST"):
        own = {"Host": f"{host}:{port}", "Origin": f"https://{host}:{port}"}
        assert ask(target, "GET", "/api/v1/namespaces", None, own)[0] == 200


def test_given_loop_stalls_then_they_are_counted(target: ServerProcess) -> None:
    metrics = target.kubectl("get", "--raw", "/metrics")
    assert "livevirt_event_loop_stalls_total" in metrics
    assert "livevirt_event_loop_longest_stall_seconds" in metrics
