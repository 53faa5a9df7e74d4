"""Ports of a guest through the API and by virtctl."""

from __future__ import annotations

import asyncio
import re
import socket

import pytest
from aiohttp import ClientWebSocketResponse, WSCloseCode, WSMsgType

from livevirt.errors import ApiError, BadRequest, Conflict, NotFound
from livevirt.kube.client.remote import RemoteClient
from livevirt.vm.guest import stream

from .served import SECONDS, Served, ended
from .vm_world import NAMESPACE, PlayedNode, World

GROUP = f"/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}"
PATH = f"{GROUP}/virtualmachineinstances/web/portforward"


async def opened(client: RemoteClient, path: str = f"{PATH}/80") -> ClientWebSocketResponse:
    return await client.websocket(path, protocols=(stream.PROTOCOL,))


@pytest.mark.parametrize(
    ("path", "dialled"),
    [
        (f"{PATH}/80", ("web", "tcp", 80)),
        (f"{PATH}/22/tcp", ("web", "tcp", 22)),
        (f"{PATH}/53/udp", ("web", "udp", 53)),
        (f"{GROUP}/virtualmachines/web/portforward/65535/tcp", ("web", "tcp", 65535)),
    ],
)
async def test_a_port_of_an_instance_or_a_vm_is_connected_to(
    served: Served, client: RemoteClient, path: str, dialled: tuple[str, str, int]
) -> None:
    line = await opened(client, path)
    assert line.protocol == "plain.kubevirt.io"
    await line.send_bytes(b"one")
    assert await line.receive_bytes() == b"one"
    await line.close()
    assert served.guests.dialled == [dialled]


async def test_the_end_of_a_connection_is_a_normal_closure(
    served: Served, client: RemoteClient
) -> None:
    # Another code would be an error to KubeVirt's clients.
    line = await opened(client)
    await line.send_bytes(b"bye")
    assert await line.receive_bytes() == b"bye"
    await served.guests.hang_up()
    async with asyncio.timeout(SECONDS):
        message = await line.receive()
    assert (message.type, message.data) == (WSMsgType.CLOSE, WSCloseCode.OK)


async def test_the_guest_notices_that_the_client_left(served: Served, client: RemoteClient) -> None:
    line = await opened(client)
    await line.close()
    async with asyncio.timeout(SECONDS):
        await served.guests.left.wait()


@pytest.mark.parametrize(
    "rest", ["0", "65536", "http", "-1", "٣", "80/sctp", "99999999999999999999", "80/tcp/x"]
)
async def test_what_is_no_port_is_refused(client: RemoteClient, rest: str) -> None:
    with pytest.raises((BadRequest, NotFound)):
        await opened(client, f"{PATH}/{rest}")


async def test_a_guest_that_is_paused_or_does_not_run_is_not_connected_to(
    served: Served, client: RemoteClient, world: World, node: PlayedNode
) -> None:
    with pytest.raises(NotFound):
        await opened(client, f"{GROUP}/virtualmachines/other/portforward/80")
    with pytest.raises(BadRequest, match="WebSocket"):
        await client.raw("GET", f"{PATH}/80")
    await served.guests.pause(NAMESPACE, "web")
    with pytest.raises(Conflict):
        await opened(client)
    await served.guests.unpause(NAMESPACE, "web")
    await node.power_off()
    await world.until(lambda: world.vmi().get("status", {}).get("phase") != "Running")
    with pytest.raises(BadRequest):
        await opened(client)


async def test_a_port_that_cannot_be_connected_to_says_why(
    served: Served, client: RemoteClient
) -> None:
    with pytest.raises(ApiError) as refused:
        await opened(client, f"{PATH}/1")
    assert refused.value.status_code == 500
    ran = await served.virtctl("port-forward", "--stdio", "vmi/web", "1")
    assert (ran.status, ran.out) == (1, "")
    assert "connection refused" in ran.err


# ---------------------------------------------------------------- virtctl


async def forwarding(process: asyncio.subprocess.Process) -> int:
    """Return the local port that virtctl has opened."""
    assert process.stderr is not None
    line = (await process.stderr.readline()).decode()
    found = re.search(r":(\d+) to ", line)
    assert found, line + (await process.stderr.read()).decode()
    return int(found[1])


async def test_virtctl_forwards_a_port_to_many_connections(served: Served) -> None:
    process = await served.start("virtctl", "port-forward", "vm/web", "0:80")
    async with ended(process):
        port = await forwarding(process)

        async def talk(number: int) -> None:
            mine = f"{number:05}".encode() * 20_000
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(mine)
            assert await reader.readexactly(len(mine)) == mine
            writer.close()

        await asyncio.gather(*(talk(number) for number in range(50)))
        process.terminate()
        assert await process.wait() == 0
    assert served.guests.dialled == [("web", "tcp", 80)] * 50


async def test_virtctl_delivers_the_answer_after_the_question_has_ended(served: Served) -> None:
    process = await served.start("virtctl", "port-forward", "vm/web", "0:80")
    async with ended(process):
        reader, writer = await asyncio.open_connection("127.0.0.1", await forwarding(process))
        writer.write(b"question")
        writer.write_eof()
        assert await reader.read() == b"question"
        writer.close()


async def test_virtctl_forwards_datagrams_one_by_one(served: Served) -> None:
    process = await served.start("virtctl", "port-forward", f"vmi/web/{NAMESPACE}", "udp/0:53")
    async with ended(process):
        port = await forwarding(process)
        loop = asyncio.get_running_loop()
        for _ in range(2):  # two senders, each with a stream of its own
            with socket.socket(type=socket.SOCK_DGRAM) as line:
                line.setblocking(False)
                line.connect(("127.0.0.1", port))
                for text in (b"one", b"three" * 200):
                    await loop.sock_sendall(line, text)
                    assert await loop.sock_recv(line, 65536) == text
    assert served.guests.dialled == [("web", "udp", 53)] * 2


async def test_virtctl_passes_standard_input_and_output_on(served: Served) -> None:
    data = bytes(range(256)) * 4000
    ran = await served.run("virtctl", "port-forward", "--stdio=true", "vm/web", "22", stdin=data)
    assert ran.status == 0, ran.err
    assert ran.out.encode(errors="surrogateescape") == data


async def test_a_port_in_use_is_named(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = await served.virtctl("port-forward", "vm/web", str(port))
    assert ran.status == 1
    assert str(port) in ran.err
