"""A guest's screen through the API and by virtctl."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType

from livevirt.errors import BadRequest, NotFound
from livevirt.kube.client import kubeconfig
from livevirt.kube.client.remote import RemoteClient
from livevirt.vm import kinds
from livevirt.vm.guest import stream, vnc

from ..manifests import a_vm
from .served import SECONDS, Served, ended, serving
from .vm_world import NAMESPACE, PlayedNode, World

PATH = f"/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachineinstances/web/vnc"
GREETING = b"RFB 003.008\n"


class VncServer:
    """What QEMU has: a socket that greets, then says every byte back."""

    def __init__(self) -> None:
        self.connections: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.put_nowait(writer)
        writer.write(GREETING)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4096):
                writer.write(data)
                await writer.drain()
        writer.close()


@pytest.fixture
async def screen(served: Served) -> AsyncIterator[VncServer]:
    server = VncServer()
    async with await asyncio.start_unix_server(server.serve, served.guests.folder / "vnc.sock"):
        yield server


async def opened(client: RemoteClient) -> ClientWebSocketResponse:
    socket = await client.websocket(PATH, protocols=(stream.PROTOCOL,))
    assert await socket.receive_bytes() == GREETING
    return socket


async def reason(socket: ClientWebSocketResponse) -> str:
    async with asyncio.timeout(SECONDS):
        message = await socket.receive()
    assert message.type is WSMsgType.CLOSE
    return str(message.extra)


async def test_a_newcomer_takes_the_screen_over(screen: VncServer, client: RemoteClient) -> None:
    first, second = await opened(client), await opened(client)
    assert await reason(first) == vnc.TAKEN_OVER
    await second.send_bytes(b"mine")
    assert await second.receive_bytes() == b"mine"
    await second.close()


async def test_a_guest_that_ends_closes_the_screen(screen: VncServer, client: RemoteClient) -> None:
    socket = await opened(client)
    (await screen.connections.get()).close()
    assert await reason(socket) == vnc.GUEST_GONE


async def test_a_picture_leaves_the_viewer_connected(
    served: Served, screen: VncServer, client: RemoteClient
) -> None:
    viewer = await opened(client)
    assert await client.raw("GET", f"{PATH}/screenshot") == b"\x89PNG of web"
    moved = await client.raw("GET", f"{PATH}/screenshot", options={"moveCursor": "true"})
    assert moved == b"\x89PNG of web"
    asked = [command for command, _ in served.guests.commands]
    assert asked == [["screenshot", "False"], ["screenshot", "True"]]
    await viewer.send_bytes(b"there")
    assert await viewer.receive_bytes() == b"there"
    await viewer.close()


async def test_what_has_no_screen_is_refused(
    served: Served, screen: VncServer, client: RemoteClient, world: World, node: PlayedNode
) -> None:
    with pytest.raises(BadRequest, match="WebSocket"):
        await client.raw("GET", PATH)
    for path in (f"{PATH}/dance", PATH.replace("/web/", "/other/")):
        with pytest.raises(NotFound):
            await client.raw("GET", path)
    await node.power_off()
    await world.until(lambda: world.vmi().get("status", {}).get("phase") != "Running")
    for path in (PATH, f"{PATH}/screenshot"):
        with pytest.raises(BadRequest):
            await client.raw("GET", path)


async def test_a_guest_without_graphics_has_no_screen(
    world: World, node: PlayedNode, tmp_path: Path
) -> None:
    async with serving(world, tmp_path) as served:
        vm = a_vm("web", "Always")
        devices = vm["spec"]["template"]["spec"]["domain"].setdefault("devices", {})
        devices["autoattachGraphicsDevice"] = False
        await world.owner.create(kinds.VM, vm, NAMESPACE)
        await world.until(world.ready)
        client = RemoteClient(kubeconfig.find(str(served.data.kubeconfig)))
        try:
            for path in (PATH, f"{PATH}/screenshot"):
                with pytest.raises(BadRequest):
                    await client.raw("GET", path)
        finally:
            await client.close()


async def test_virtctl_passes_a_viewer_on_to_the_guest(served: Served, screen: VncServer) -> None:
    process = await served.start("virtctl", "vnc", "web", "--proxy-only")
    async with ended(process):
        assert process.stdout is not None
        port = json.loads(await process.stdout.readline())["port"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.readexactly(len(GREETING)) == GREETING
        writer.write(b"x" * 300_000)
        assert await reader.readexactly(300_000) == b"x" * 300_000
        (await screen.connections.get()).close()
        assert await reader.read() == b""
        assert await process.wait() == 1  # it was the guest that ended it
        writer.close()


async def test_virtctl_launches_a_viewer_and_ends_with_it(
    served: Served, screen: VncServer, tmp_path: Path
) -> None:
    viewer = tmp_path / "viewer"
    seen = tmp_path / "seen"
    viewer.write_text(
        "#!/usr/bin/env python3\n"
        "import socket, sys, pathlib\n"
        "host, port = sys.argv[1].split('::')\n"
        "line = socket.create_connection((host, int(port)))\n"
        f"pathlib.Path({str(seen)!r}).write_bytes(line.recv(12))\n"
    )
    viewer.chmod(0o755)
    ran = await served.virtctl("vnc", "web", "--vnc-type=tiger", f"--vnc-path={viewer}")
    assert (ran.status, seen.read_bytes()) == (0, GREETING)


async def test_virtctl_stores_a_picture(served: Served, screen: VncServer, tmp_path: Path) -> None:
    file = tmp_path / "screen.png"
    await served.succeed("virtctl", "vnc", "screenshot", "web", "-f", str(file))
    assert file.read_bytes() == b"\x89PNG of web"
    ran = await served.virtctl("vnc", "screenshot", "web", "-m", "--file=-")
    assert ran.out.encode(errors="surrogateescape") == b"\x89PNG of web"
    assert served.guests.commands[-1][0] == ["screenshot", "True"]
