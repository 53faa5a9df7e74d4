"""A guest's console, commands in it and its logs: through the API, by virtctl and kubectl."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import subprocess
import termios
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType

from livevirt.errors import BadRequest, Conflict, NotFound
from livevirt.kube.client.remote import RemoteClient
from livevirt.vm.guest import console, stream

from .served import BIN, SECONDS, Served, ended
from .vm_world import NAMESPACE, PlayedNode, World

PATH = f"/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachineinstances/web"
CONNECTED = b"Successfully connected to web console. Press Ctrl+] or Ctrl+5 to exit console.\n"


class SerialPort:
    """What QEMU has: a socket that serves one connection. It says every byte back."""

    def __init__(self) -> None:
        self.connections: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        self._busy = asyncio.Lock()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._busy:
            self.connections.put_nowait(writer)
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(4096):
                    writer.write(data)
                    await writer.drain()
            writer.close()


@pytest.fixture
async def port(served: Served) -> AsyncIterator[SerialPort]:
    port = SerialPort()
    path = served.guests.folder / "console.sock"
    async with await asyncio.start_unix_server(port.serve, path):
        yield port


async def opened(client: RemoteClient) -> ClientWebSocketResponse:
    return await client.websocket(f"{PATH}/console", protocols=(stream.PROTOCOL,))


async def received(socket: ClientWebSocketResponse, size: int) -> bytes:
    data = b""
    async with asyncio.timeout(SECONDS):
        while len(data) < size:
            data += await socket.receive_bytes()
    return data


async def reason(socket: ClientWebSocketResponse) -> str:
    """Return why the server closed."""
    async with asyncio.timeout(SECONDS):
        while (message := await socket.receive()).type is not WSMsgType.CLOSE:
            pass
    return str(message.extra)


# ---------------------------------------------------------------- the console


async def test_every_byte_passes_as_it_is(port: SerialPort, client: RemoteClient) -> None:
    socket = await opened(client)
    assert socket.protocol == "plain.kubevirt.io"
    everything = bytes(range(256)) * 400
    await socket.send_bytes(everything)
    assert await received(socket, len(everything)) == everything
    await socket.close()


async def test_nothing_is_replayed_to_a_new_client(port: SerialPort, client: RemoteClient) -> None:
    first = await opened(client)
    await first.send_bytes(b"old")
    assert await received(first, 3) == b"old"
    await first.close()
    second = await opened(client)
    await second.send_bytes(b"new")
    assert await received(second, 3) == b"new"
    await second.close()


async def test_a_newcomer_takes_the_console_over(port: SerialPort, client: RemoteClient) -> None:
    sockets = [await opened(client) for _ in range(3)]
    assert [await reason(socket) for socket in sockets[:2]] == [console.TAKEN_OVER] * 2
    await sockets[2].send_bytes(b"mine")
    assert await received(sockets[2], 4) == b"mine"
    await sockets[2].close()


async def test_a_guest_that_ends_says_so(port: SerialPort, client: RemoteClient) -> None:
    socket = await opened(client)
    (await port.connections.get()).close()
    assert await reason(socket) == console.GUEST_GONE


async def test_a_console_that_is_not_there_yet_is_a_bad_request(
    served: Served, world: World, node: PlayedNode, client: RemoteClient
) -> None:
    with pytest.raises(BadRequest):  # nobody listens: QEMU has just been started or has ended
        await opened(client)
    await node.power_off()
    await world.until(lambda: world.vmi().get("status", {}).get("phase") != "Running")
    with pytest.raises(BadRequest):
        await opened(client)


async def test_what_is_no_websocket_and_what_is_no_guest_is_refused(
    port: SerialPort, client: RemoteClient
) -> None:
    with pytest.raises(BadRequest, match="WebSocket"):
        await client.raw("GET", f"{PATH}/console")
    with pytest.raises(NotFound):
        await client.raw("GET", f"{PATH}x/console")


async def test_virtctl_passes_a_pipe_on_and_leaves_when_the_guest_is_silent(
    served: Served, port: SerialPort
) -> None:
    ran = await served.run("virtctl", "console", "web", stdin=b"hello\r")
    assert (ran.status, ran.out, ran.err.encode()) == (0, "hello\r", CONNECTED)


async def test_virtctl_leaves_at_the_escape_key(served: Served, port: SerialPort) -> None:
    process = await served.start("virtctl", "console", "web")
    async with ended(process):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"x")
        assert await process.stdout.readexactly(1) == b"x"
        process.stdin.write(b"\x1d")
        assert await process.wait() == 0


async def test_virtctl_waits_for_the_guest_to_run(served: Served, port: SerialPort) -> None:
    served.guests.console_open = False
    process = await served.start("virtctl", "console", "web")
    async with ended(process):
        assert process.stderr is not None
        assert b"Waiting for web to run" in await process.stderr.readline()
        served.guests.console_open = True
        assert await process.stderr.readline() == CONNECTED


async def test_virtctl_gives_up_in_time(served: Served) -> None:
    ran = await served.virtctl("console", "web", "--timeout=0")
    assert (ran.status, ran.err) == (
        1, "web does not run after 0 s; see `kubectl get vmi web`\n",
    )  # fmt: skip


async def test_virtctl_says_why_it_was_disconnected(
    served: Served, port: SerialPort, client: RemoteClient
) -> None:
    process = await served.start("virtctl", "console", "web")
    async with ended(process):
        assert process.stderr is not None
        assert await process.stderr.readline() == CONNECTED
        socket = await opened(client)
        assert console.TAKEN_OVER.encode() in await process.stderr.read()
        assert await process.wait() == 1
        await socket.close()


async def test_virtctl_on_a_terminal_passes_every_key_and_restores_it(
    served: Served, port: SerialPort
) -> None:
    keyboard, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    process = await asyncio.create_subprocess_exec(
        str(BIN / "virtctl"), "console", "web", env=served.environment(),
        stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        async with ended(process):
            assert process.stderr is not None
            assert process.stdout is not None
            assert await process.stderr.readline() == CONNECTED
            await until_raw(terminal)
            os.write(keyboard, b"\x03\x04\r")  # Ctrl-C, Ctrl-D and Enter belong to the guest
            assert await process.stdout.readexactly(3) == b"\x03\x04\r"
            os.write(keyboard, b"\x1d")
            assert await process.wait() == 0
        assert termios.tcgetattr(terminal) == before
    finally:
        os.close(keyboard)
        os.close(terminal)


async def until_raw(terminal: int) -> None:
    while termios.tcgetattr(terminal)[3] & termios.ICANON:  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(0.01)


# ---------------------------------------------------------------- commands in the guest


async def test_a_command_passes_on_its_output_and_status(served: Served) -> None:
    await served.guests.connect_agent()
    ran = await served.run("livevirt", "exec", "web", "--", "exit", "-v", "7")
    assert (ran.status, ran.out.encode(errors="surrogateescape"), ran.err) == (
        7, b"out\xff", "err\n",
    )  # fmt: skip
    data = ["--data-dir", str(served.data.root)]
    ran = await served.run("livevirt", "exec", "-i", *data, "web", "cat", stdin=b"\x00in")
    assert ran.status == 0
    ran = await served.run("livevirt", "exec", "web", "--", "killed")
    assert ran.status == 128 + 9
    assert served.guests.commands[:2] == [(["exit", "-v", "7"], b""), (["cat"], b"\x00in")]


async def test_a_command_in_a_guest_without_an_agent_says_what_to_wait_for(
    served: Served,
) -> None:
    ran = await served.run("livevirt", "exec", "web", "--", "true")
    assert ran.status == 1
    assert "VMI does not have guest agent connected" in ran.err
    assert "kubectl wait vmi web --for=condition=AgentConnected" in ran.err
    ran = await served.run("livevirt", "exec", "other", "--", "true")
    assert ran.status == 1
    assert "virtctl start" in ran.err


@pytest.mark.wording
async def test_given_the_agent_has_stopped_then_a_command_says_so_and_not_to_wait(
    served: Served,
) -> None:
    served.guests.agent_seen = True
    for command in (("livevirt", "exec", "web", "--", "true"), ("virtctl", "guestosinfo", "web")):
        ran = await served.run(*command)
        assert ran.status == 1
        assert "the guest agent was connected and has stopped" in ran.err
        assert "virtctl console web" in ran.err
        assert "kubectl wait" not in ran.err


async def test_a_command_is_a_list_of_texts(served: Served, client: RemoteClient) -> None:
    with pytest.raises(Conflict):
        await client.raw("POST", f"{PATH}/exec", body={"command": ["true"]})
    for body in ([], {}, {"command": []}, {"command": "ls"}, {"command": [1]},
                 {"command": ["ls"], "stdin": "?"}):  # fmt: skip
        with pytest.raises(BadRequest):
            await client.raw("POST", f"{PATH}/exec", body=body)


# ---------------------------------------------------------------- logs


async def test_kubectl_reads_both_logs_of_a_launcher(served: Served, world: World) -> None:
    (served.guests.folder / "compute.log").write_bytes(b"one\ntwo\nthree\n")
    (served.guests.folder / "guest-console-log.log").write_bytes(b"login: \r\n")
    pod = world.pods()[0]["metadata"]["name"]
    assert await served.succeed("kubectl", "logs", pod) == "one\ntwo\nthree\n"
    assert await served.succeed("kubectl", "logs", pod, "--tail=2") == "two\nthree\n"
    assert await served.succeed("kubectl", "logs", pod, "--limit-bytes=5") == "one\nt"
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/log?container=guest-console-log"
    assert await served.succeed("kubectl", "get", "--raw", path) == "login: \r\n"
    ran = await served.run("kubectl", "logs", pod, "--since=5s", "--timestamps")
    assert ran.out == "one\ntwo\nthree\n"
    assert "sinceSeconds has no effect" in ran.err
    ran = await served.run("kubectl", "logs", pod, "--previous")
    assert ran.status == 1
    assert "not found" in ran.err


async def test_kubectl_names_the_console_log_as_a_container(served: Served, world: World) -> None:
    (served.guests.folder / "guest-console-log.log").write_bytes(b"login: \r\n")
    pod = world.pods()[0]["metadata"]["name"]
    out = await served.succeed("kubectl", "logs", pod, "-c", "guest-console-log")
    assert out == "login: \r\n"


async def test_a_log_that_is_cut_while_it_is_followed_goes_on(served: Served, world: World) -> None:
    log = served.guests.folder / "compute.log"
    log.write_bytes(b"one\n" * 1000)
    process = await served.start("kubectl", "logs", "-f", world.pods()[0]["metadata"]["name"])
    async with ended(process):
        assert process.stdout is not None
        for _ in range(1000):
            assert await process.stdout.readline() == b"one\n"
        os.truncate(log, len(b"one\n"))

        async def go_on() -> None:
            while True:
                with log.open("ab") as file:
                    file.write(b"two\n")
                await asyncio.sleep(0.1)

        writing = asyncio.create_task(go_on())
        assert await process.stdout.readline() == b"two\n"
        writing.cancel()


async def test_a_followed_log_ends_with_its_pod(
    served: Served, world: World, node: PlayedNode
) -> None:
    log = served.guests.folder / "compute.log"
    log.write_bytes(b"one\n")
    process = await served.start("kubectl", "logs", "-f", world.pods()[0]["metadata"]["name"])
    async with ended(process):
        assert process.stdout is not None
        assert await process.stdout.readline() == b"one\n"
        with log.open("ab") as file:
            file.write(b"two\n")
        assert await process.stdout.readline() == b"two\n"
        await node.power_off()
        assert await process.stdout.read() == b""
        assert await process.wait() == 0
