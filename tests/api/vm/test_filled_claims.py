"""A VM on a claim that a DataVolume still fills."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from livevirt.background import storage
from livevirt.kube.controllers import bootstrap
from livevirt.kube.objects import conditions, core
from livevirt.vm import kinds

from ..manifests import a_vm
from .vm_world import NAMESPACE, World, running

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is missing")

CONTENT = b"a disk of some guest" + bytes(2**20)
BY_CLAIM = {"persistentVolumeClaim": {"claimName": "system"}}
SOURCES: dict[str, Any] = {
    "claim": BY_CLAIM,
    "ephemeral": {"ephemeral": BY_CLAIM},
    "data volume": {"dataVolume": {"name": "system"}},
}


class NoImages:
    """An image store without an image."""

    def find(self, reference: str) -> None:
        return None

    def missing(self, name: str) -> str:
        return f"there is no image {name}"


@contextlib.asynccontextmanager
async def slow_site(gate: asyncio.Event) -> AsyncIterator[str]:
    """Serve a disk, half of it once the gate is open."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = len(CONTENT)
        await response.prepare(request)
        half = len(CONTENT) // 2
        await response.write(CONTENT[:half])
        await gate.wait()
        await response.write(CONTENT[half:])
        return response

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/disk"
    finally:
        gate.set()
        await runner.cleanup()


def why_it_waits(world: World) -> str:
    listed = (world.vm().get("status") or {}).get("conditions")
    return (conditions.find(listed, "Synchronized") or {}).get("reason", "")


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
async def test_given_its_claim_is_still_imported_then_a_vm_waits_for_the_import(
    quiet: World, tmp_path: Path, source: dict[str, Any]
) -> None:
    gate = asyncio.Event()
    await bootstrap.ensure_storage_class(quiet.components)
    controllers = running(quiet, storage(tmp_path / "volumes", NoImages()))
    async with slow_site(gate) as url, controllers:
        room = {"resources": {"requests": {"storage": "8Mi"}}}
        data = {
            "apiVersion": kinds.DATA_VOLUME.api_version,
            "kind": kinds.DATA_VOLUME.kind,
            "metadata": {"name": "system"},
            "spec": {"source": {"http": {"url": url}}, "storage": room},
        }
        await quiet.owner.create(kinds.DATA_VOLUME, data, NAMESPACE)
        await quiet.until(lambda: bound(quiet))
        vm = a_vm()
        vm["spec"]["template"]["spec"]["volumes"] = [{"name": "root", **source}]
        await quiet.owner.create(kinds.VM, vm, NAMESPACE)
        await quiet.until(lambda: why_it_waits(quiet) or quiet.pods())
        assert (why_it_waits(quiet), quiet.pods()) == ("DataVolumesNotReady", [])
        gate.set()
        await quiet.until(quiet.pods)
        found = quiet.get(kinds.DATA_VOLUME, "system") or {}
        assert found["status"]["phase"] == "Succeeded"


def bound(world: World) -> bool:
    claim = world.get(core.CLAIM, "system") or {}
    return (claim.get("status") or {}).get("phase") == "Bound"
