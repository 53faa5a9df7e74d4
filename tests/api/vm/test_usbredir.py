"""USB slots of a guest through the API and by virtctl."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientWebSocketResponse

from livevirt.errors import ApiError, BadRequest, Conflict
from livevirt.kube.client import kubeconfig
from livevirt.kube.client.remote import RemoteClient
from livevirt.vm import kinds
from livevirt.vm.guest import stream

from ..manifests import a_vm
from .served import SECONDS, Served, ended, serving
from .vm_world import NAMESPACE, PlayedNode, World

GROUP = f"/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachineinstances"


async def serve_slot(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(4096):
            writer.write(data)
    writer.close()


@pytest.fixture
async def served(world: World, node: PlayedNode, tmp_path: Path) -> AsyncIterator[Served]:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(world, tmp_path))
        for slot in range(4):
            path = tmp_path / f"usb{slot}.sock"
            await stack.enter_async_context(await asyncio.start_unix_server(serve_slot, path))
        for name in ("web", "plain"):
            vm = a_vm(name, "Always")
            if name == "web":
                devices = vm["spec"]["template"]["spec"]["domain"].setdefault("devices", {})
                devices["clientPassthrough"] = {}
            await world.owner.create(kinds.VM, vm, NAMESPACE)
        await world.until(lambda: world.ready("web") and world.ready("plain"))
        yield server


@pytest.fixture
async def client(served: Served) -> AsyncIterator[RemoteClient]:
    client = RemoteClient(kubeconfig.find(str(served.data.kubeconfig)))
    yield client
    await client.close()


async def opened(client: RemoteClient, name: str = "web") -> ClientWebSocketResponse:
    return await client.websocket(f"{GROUP}/{name}/usbredir", protocols=(stream.PROTOCOL,))


async def test_four_clients_have_a_slot_each_and_a_fifth_waits_for_one(
    client: RemoteClient,
) -> None:
    slots = [await opened(client) for _ in range(4)]
    for number, slot in enumerate(slots):
        await slot.send_bytes(b"%d" % number)
        assert await slot.receive_bytes() == b"%d" % number
    with pytest.raises(ApiError) as refused:
        await opened(client)
    assert refused.value.status_code == 503
    await slots[2].close()
    async with asyncio.timeout(SECONDS):
        while True:
            with contextlib.suppress(ApiError):
                slots[2] = await opened(client)
                break
    for slot in slots:
        await slot.close()


async def test_a_guest_whose_spec_has_no_slots_is_refused(client: RemoteClient) -> None:
    with pytest.raises(Conflict):
        await opened(client, "plain")
    with pytest.raises(BadRequest, match="WebSocket"):
        await client.raw("GET", f"{GROUP}/web/usbredir")


async def test_virtctl_serves_a_slot_or_launches_the_client(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await served.start("virtctl", "usbredir", "--no-launch", "web")
    async with ended(process):
        assert process.stdout is not None
        port = int((await process.stdout.readline()).rpartition(b":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"usb")
        assert await reader.readexactly(3) == b"usb"
        writer.close()
    ran = await served.virtctl("usbredir", "--no-launch", "0951:1666", "web")
    assert ran.status == 1
