"""The server on a socket, with a stand-in for the guests of a node that is only played."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from livevirt.errors import ApiError, BadRequest, Conflict
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.kube.server import pki
from livevirt.kube.server.authenticate import Authenticator, Tokens
from livevirt.kube.server.http import Front
from livevirt.kube.server.listen import listening
from livevirt.kube.server.metrics import Metrics
from livevirt.kube.server.pod_log import Logs
from livevirt.paths import DataDir
from livevirt.qemu.agent import Finished
from livevirt.vm import kinds
from livevirt.vm.guest.port_forward import TransportProtocol
from livevirt.vm.guest.stream import Channel
from livevirt.vm.subresources import router
from livevirt.vm.subresources.router import Actions

from .vm_world import NAMESPACE, NODE, World, now

BIN = Path(sys.executable).parent
SECONDS = 60.0


class Echo:
    """A port of a guest that says everything back."""

    def __init__(self, left: asyncio.Event) -> None:
        self.said: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._left = left

    async def receive(self) -> bytes | None:
        return await self.said.get()

    async def send(self, data: bytes) -> None:
        await self.said.put(data)

    async def close(self) -> None:
        self._left.set()


@dataclass
class Guests:
    """Guests that do as they are told: files for logs, a socket that answers for a console."""

    world: World
    folder: Path
    commands: list[tuple[list[str], bytes]] = field(default_factory=list)
    console_open: bool = True
    agent_seen: bool = False
    dialled: list[tuple[str, str, int]] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    channels: list[Echo] = field(default_factory=list)

    async def pause(self, namespace: str, vmi: str) -> None:
        await self._condition(vmi, "Paused", "True")

    async def unpause(self, namespace: str, vmi: str) -> None:
        await self._condition(vmi, "Paused", "False")

    async def soft_reboot(self, namespace: str, vmi: str) -> None:
        self.commands.append((["soft reboot", vmi], b""))

    async def reset(self, namespace: str, vmi: str) -> None:
        self.commands.append((["reset", vmi], b""))

    def agent_answered(self, namespace: str, vmi: str) -> bool:
        return self.agent_seen

    async def guest_os_info(self, namespace: str, vmi: str) -> Object:
        return {"hostname": vmi, "os": {"name": "Größe"}}

    async def user_list(self, namespace: str, vmi: str) -> Object:
        return {"items": [{"userName": "root"}], "metadata": {}}

    async def filesystem_list(self, namespace: str, vmi: str) -> Object:
        return {"items": [{"mountPoint": "/"}], "metadata": {}}

    async def console_socket(self, namespace: str, vmi: str) -> Path:
        if not self.console_open:
            raise BadRequest("not yet")
        return self.folder / "console.sock"

    async def vnc_socket(self, namespace: str, vmi: str) -> Path:
        return self.folder / "vnc.sock"

    async def screenshot(self, namespace: str, vmi: str, *, move_cursor: bool) -> bytes:
        self.commands.append((["screenshot", str(move_cursor)], b""))
        return b"\x89PNG of " + vmi.encode()

    async def usb_sockets(self, namespace: str, vmi: str) -> list[Path]:
        return [self.folder / f"usb{slot}.sock" for slot in range(4)]

    async def dial(
        self, namespace: str, vmi: str, protocol: TransportProtocol, port: int
    ) -> Channel:
        if port == 1:
            raise ApiError("connection refused")
        self.dialled.append((vmi, protocol, port))
        self.channels.append(Echo(self.left))
        return self.channels[-1]

    async def hang_up(self) -> None:
        """Close the connections as a guest does."""
        for channel in self.channels:
            await channel.said.put(None)

    async def exec(
        self, namespace: str, vmi: str, command: Sequence[str], stdin: bytes
    ) -> Finished:
        self.commands.append((list(command), stdin))
        if command[0] == "killed":
            return Finished(None, b"", b"", signal=9)
        return Finished(int(command[-1]) if command[0] == "exit" else 0, b"out\xff", b"err\n")

    async def log_file(self, namespace: str, pod: str, container: str) -> Path:
        return self.folder / f"{container}.log"

    async def connect_agent(self, vmi: str = "web") -> None:
        await self._condition(vmi, "AgentConnected", "True")

    async def _condition(self, vmi: str, type_: str, status: str) -> None:
        client = self.world.client_of(NODE)
        while True:
            found = self.world.vmi(vmi)
            told = (found.get("status") or {}).get("conditions") or []
            others = [condition for condition in told if condition["type"] != type_]
            patch = {
                "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
                "status": {"conditions": [*others, {"type": type_, "status": status}]},
            }
            with contextlib.suppress(Conflict):  # the controllers write conditions too
                await client.patch(kinds.VMI, vmi, NAMESPACE, patch)
                return


@dataclass
class Ran:
    """What came of a command."""

    status: int
    out: str
    err: str


@dataclass
class Served:
    """A running server: its files and its guests."""

    data: DataDir
    guests: Guests

    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{BIN}:{os.environ.get('PATH', '')}",
            "HOME": str(self.data.root),
            "KUBECONFIG": str(self.data.kubeconfig),
            "KUBECACHEDIR": str(self.data.root / "cache"),
            "LC_ALL": "C.UTF-8",
        }

    async def start(self, *command: str) -> asyncio.subprocess.Process:
        """Start a command with pipes to all its streams."""
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            str(BIN / command[0]), *command[1:], env=self.environment(),
            stdin=pipe, stdout=pipe, stderr=pipe,
        )  # fmt: skip

    async def run(self, *command: str, stdin: bytes = b"") -> Ran:
        """Run a command to its end."""
        process = await self.start(*command)
        async with ended(process):
            out, err = await process.communicate(stdin)
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(errors="surrogateescape"), err.decode())

    async def virtctl(self, *args: str) -> Ran:
        return await self.run("virtctl", *args)

    async def succeed(self, *command: str) -> str:
        """Run a command that must succeed; return what it printed."""
        ran = await self.run(*command)
        assert ran.status == 0, f"{command}\n{ran.out}{ran.err}"
        return ran.out


@contextlib.asynccontextmanager
async def ended(process: asyncio.subprocess.Process) -> AsyncIterator[None]:
    """Let a process live no longer than the block, and the block no longer than is decent."""
    try:
        async with asyncio.timeout(SECONDS):
            yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def serving(world: World, folder: Path) -> AsyncIterator[Served]:
    """Serve a world over TLS on loopback while the block lasts; a cluster is served already."""
    if world.kubeconfig:
        served = Served(DataDir(folder), Guests(world, folder))
        shutil.copyfile(world.kubeconfig, served.data.kubeconfig)
        yield served
        return
    guests = Guests(world, folder)
    keys = pki.ensure(folder / "pki", ("127.0.0.1",), now())
    actions = Actions(world.components, guests, router.guest_verbs(guests))
    logs = Logs(guests, lambda space, name: world.read.get(core.POD, name, space))
    front = Front(
        world.api, Authenticator(Tokens(keys.token_key), world.read, now), Metrics(world.store)
    )
    front.attach(actions.handle, {("pods", "log"): logs.stream})
    served = Served(DataDir(folder), guests)
    async with listening(front.handle, keys, "127.0.0.1", 0) as port:
        pki.write_kubeconfig(served.data.kubeconfig, f"https://127.0.0.1:{port}", keys)
        yield served
