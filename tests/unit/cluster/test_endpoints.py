from __future__ import annotations

import aiohttp
import pytest

from livevirt.cluster.endpoints import Endpoints
from livevirt.errors import LivevirtError
from livevirt.kube.control.metrics import Family, Histogram, Sample

FAMILY = Family("livevirt_test", "gauge", "A figure.")


async def samples() -> list[Sample | Histogram]:
    return [Sample(FAMILY, (), 3)]


async def test_given_checks_then_the_status_follows_them() -> None:
    problems = {"healthy": "", "ready": "not listed yet: pods"}
    endpoints = Endpoints(lambda: problems["healthy"], lambda: problems["ready"])
    async with endpoints.listening("127.0.0.1", 0) as port, aiohttp.ClientSession() as session:

        async def status(path: str) -> int:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status

        assert (await status("/healthz"), await status("/readyz")) == (200, 503)
        problems.update(healthy="the lease could not be renewed", ready="")
        assert (await status("/healthz"), await status("/readyz")) == (503, 200)
        assert await status("/other") == 404


async def test_given_sources_then_metrics_has_them_and_those_of_the_process() -> None:
    endpoints = Endpoints(sources=(samples,))
    async with (
        endpoints.listening("127.0.0.1", 0) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics") as response,
    ):
        text = await response.text()
    assert "livevirt_test 3\n" in text
    assert "process_resident_memory_bytes" in text


async def test_given_a_port_in_use_then_the_failure_is_an_error_of_ours() -> None:
    async with Endpoints().listening("127.0.0.1", 0) as port:
        with pytest.raises(LivevirtError):
            async with Endpoints().listening("127.0.0.1", port):
                pass
