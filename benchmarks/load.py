"""A cheap load generator: raw HTTP/1.1 over TLS, one request at a time per connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A server under load."""

    host: str
    port: int
    tls: ssl.SSLContext
    token: str = ""

    def request(
        self, method: str, path: str, body: bytes = b"", kind: str = "application/json"
    ) -> bytes:
        """Return a whole request, ready to be written."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}", "Accept: application/json"]
        if self.token:
            lines.append(f"Authorization: Bearer {self.token}")
        if body:
            lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class Connection:
    """One TLS connection that sends a request and reads its answer."""

    def __init__(self, target: Target) -> None:
        self._target = target

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection(
            self._target.host, self._target.port, ssl=self._target.tls, limit=1 << 24
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; return status and body."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        at = head.lower().find(b"content-length:")
        if at < 0:
            raise RuntimeError(f"no Content-Length: {head!r}")
        length = int(head[at + 15 : head.index(b"\r", at)])
        return status, await self._reader.readexactly(length)


async def run(
    target: Target, requests: Iterator[bytes], connections: int, expect: int
) -> tuple[float, list[float]]:
    """Send all requests over so many connections; return the seconds and each latency.

    The clock starts once all connections stand: a handshake, with a client certificate or without,
    is no part of a request.
    """
    latencies: list[float] = []

    async def work(connection: Connection) -> None:
        for request in requests:
            began = time.perf_counter()
            status, body = await connection.ask(request)
            latencies.append(time.perf_counter() - began)
            if status != expect:
                raise RuntimeError(f"status {status}: {body[:300]!r}")

    async with contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(Connection(target)) for _ in range(connections)]
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for connection in opened:
                group.create_task(work(connection))
        return time.perf_counter() - began, latencies


def quantile(values: list[float], share: float) -> float:
    """Return a quantile of a list of numbers."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def config_map(name: str, size: int = 1500) -> bytes:
    """Return a ConfigMap of about `size` bytes as JSON."""
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "bench", "labels": {"app": "bench"}},
        "data": {"first": "x" * (size // 2), "second": "y" * (size // 2 - 150)},
    }
    return json.dumps(obj).encode()


def virtual_machine(name: str) -> bytes:
    """Return a halted VirtualMachine of typical size as JSON."""
    disk = [{"name": f"d{i}", "disk": {"bus": "virtio"}, "bootOrder": i + 1} for i in range(4)]
    volumes = [{"name": f"d{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}} for i in range(4)]
    obj = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "bench", "labels": {"app": "bench"}},
        "spec": {
            "runStrategy": "Halted",
            "template": {
                "metadata": {
                    "labels": {"kubevirt.io/domain": name},
                    "annotations": {"note": "x" * 200},
                },
                "spec": {
                    "domain": {
                        "cpu": {"sockets": 2, "cores": 2, "threads": 1},
                        "memory": {"guest": "4Gi"},
                        "devices": {
                            "disks": disk,
                            "interfaces": [{"name": "default", "masquerade": {}}],
                        },
                    },
                    "networks": [{"name": "default", "pod": {}}],
                    "volumes": volumes,
                    "terminationGracePeriodSeconds": 30,
                },
            },
        },
    }
    return json.dumps(obj).encode()


Make = Callable[[str], bytes]
