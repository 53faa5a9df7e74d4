"""`/healthz`, `/readyz` and `/metrics` of a component, over plain HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.process_collector import ProcessCollector

from livevirt.errors import LivevirtError
from livevirt.kube.control import metrics
from livevirt.kube.control.metrics import Source

#: Returns why something is not so, nothing if it is.
Check = Callable[[], str]


def _passes() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What the endpoints of a component report."""

    healthy: Check = _passes
    ready: Check = _passes
    sources: Sequence[Source] = ()
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        ProcessCollector(registry=self.registry)

    def routes(self) -> list[web.RouteDef]:
        """Return the endpoints, for a server that has others as well."""
        return [
            web.get("/healthz", self._health),
            web.get("/readyz", self._readiness),
            web.get("/metrics", self._metrics),
        ]

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        """Serve while the context is open, and yield the port."""
        application = web.Application()
        application.add_routes(self.routes())
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host, port).start()
            except OSError as error:
                why = error.strerror or str(error)
                raise LivevirtError(
                    f"cannot listen on {host}:{port}: {why}; choose another address with --listen"
                ) from error
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return _answer(self.healthy())

    async def _readiness(self, _: web.Request) -> web.Response:
        return _answer(self.ready())

    async def _metrics(self, _: web.Request) -> web.Response:
        own = await asyncio.to_thread(generate_latest, self.registry)
        found = [sample for source in self.sources for sample in await source()]
        text = metrics.text(found).encode()
        return web.Response(body=own + text, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(problem: str) -> web.Response:
    return web.Response(status=503 if problem else 200, text=problem or "ok")
