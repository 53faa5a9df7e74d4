"""Whatever is sent, the answer is a refusal in Kubernetes' own form, and nothing changes."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from livevirt.vm.kinds import REGISTRY

from ..server_process import ServerProcess, running_server
from .bad_requests import SPACE, Bad, requests
from .manifests import a_halted_vm, a_map, a_pod

pytestmark = pytest.mark.slow
SECONDS = 60.0
CONNECTIONS = 6
#: What a server does by itself, whatever clients do.
OWN_AFFAIRS = ("Lease", "Node", "Event")


@pytest.fixture(scope="module")
def attacked() -> Iterator[ServerProcess]:
    """A server of its own, with a few objects to aim at."""
    with running_server() as server:
        server.kubectl("create", "namespace", SPACE)
        server.kubectl("-n", SPACE, "wait", "--for=create", "sa/default", "--timeout=50s")
        for obj in (a_map("a", x="1"), a_pod("p"), a_halted_vm("web")):
            server.kubectl("-n", SPACE, "create", "-f", "-", input=json.dumps(obj))
        yield server


class Sender:
    """A connection that is opened again whenever the server has closed it."""

    def __init__(self, server: ServerProcess, context: ssl.SSLContext) -> None:
        host, _, port = server.url.removeprefix("https://").rpartition(":")
        self._address = (host, int(port))
        self._context = context
        self._token = server.token.encode()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, bad: Bad) -> tuple[int, bytes]:
        """Return the status and body of the answer."""
        used = self._streams is not None and bad.framed
        try:
            return await self._send(bad, fresh=not used)
        except (asyncio.IncompleteReadError, ConnectionError):
            if not used:
                raise
            # A server may close a connection that waits for its next request.
            return await self._send(bad, fresh=True)

    async def _send(self, bad: Bad, *, fresh: bool) -> tuple[int, bytes]:
        if self._streams is None or fresh:
            await self.close()
            host, port = self._address
            self._streams = await asyncio.open_connection(host, port, ssl=self._context)
        reader, writer = self._streams
        writer.write(bad.raw.replace(b"TOKEN", self._token))
        status, keep, body = await _answer(reader)
        if not keep or not bad.framed:
            await self.close()
        return status, body

    async def close(self) -> None:
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            writer.transport.abort()  # the server may be in the middle of anything


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bool, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split()[1])
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
    if status == 100:
        return await _answer(reader)
    if headers.get("transfer-encoding") == "chunked":
        return status, False, await reader.read(1000)  # a stream has begun: no refusal
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    keep = head[0].startswith("HTTP/1.1") and headers.get("connection", "").lower() != "close"
    return status, keep, body


def wrong_about(status: int, body: bytes) -> str:
    """Say what is wrong with an answer to a bad request, or ""."""
    if not 400 <= status < 500:
        return f"answered {status} {body[:300]!r}"
    try:
        answer: Any = json.loads(body)
    except ValueError:
        return f"answered {status} with no JSON: {body[:300]!r}"
    shape = [answer.get(name) for name in ("kind", "apiVersion", "status", "code")]
    if shape != ["Status", "v1", "Failure", status]:
        return f"answered {status} with no such Status: {body[:300]!r}"
    return "" if answer.get("reason") and answer.get("message") else f"no reason: {answer}"


async def attack(server: ServerProcess, bads: list[Bad]) -> list[str]:
    """Send everything over a few connections; return what went wrong."""
    left = iter(bads)
    context = server.trust()
    problems: list[str] = []

    async def worker() -> None:
        sender = Sender(server, context)
        for bad in left:
            try:
                async with asyncio.timeout(SECONDS):
                    wrong = wrong_about(*await sender.send(bad))
            except (TimeoutError, OSError, EOFError) as error:
                wrong = f"not answered: {error!r}"
            if wrong:
                problems.append(f"{bad.label}\n    {wrong}")
        await sender.close()

    await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))
    return problems


def everything(server: ServerProcess) -> dict[str, str]:
    """Return the version of every object there is."""
    found = {}
    for kind in REGISTRY.kinds:
        if not kind.stored or kind.kind in OWN_AFFAIRS:
            continue
        listed = json.loads(server.kubectl("get", "--raw", kind.path("", "", "", "")))
        for obj in listed["items"]:
            meta = obj["metadata"]
            place = f"{kind.resource}/{meta.get('namespace', '')}/{meta['name']}"
            found[place] = meta["resourceVersion"]
    return found


async def survive(server: ServerProcess, count: int, seed: int) -> None:
    before = everything(server)
    problems = await attack(server, list(requests(count, seed)))
    assert server.alive()
    counted = Counter(problem.partition("\n")[0].partition(":")[0] for problem in problems)
    assert not problems, f"{len(problems)} of {count}: {counted}\n" + "\n".join(problems[:40])
    assert everything(server) == before
    assert "Traceback" not in server.log.read_text()


async def test_given_malformed_requests_then_each_is_refused_with_a_status_object(
    attacked: ServerProcess,
) -> None:
    await survive(attacked, 400, seed=2)


@pytest.mark.soak
async def test_given_two_thousand_malformed_requests_then_each_is_refused_with_a_status_object(
    attacked: ServerProcess,
) -> None:
    await survive(attacked, 2000, seed=20)
