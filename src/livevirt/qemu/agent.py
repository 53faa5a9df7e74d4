"""What the guest says about itself, through the guest agent's channel.

The channel has no notion of a connection to the agent: bytes may go to an agent that died, and
answers to a caller that gave up may still be on their way. So every call first agrees on a random
number (`guest-sync-delimited`); who does not answer that in time is not there. The socket stays
open between calls, since an agent without a peer polls its port all the time.

Calls take no timeout: use `asyncio.timeout`. A call that was given up costs the connection only.
"""

import asyncio
import base64
import contextlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from livevirt.qemu.errors import AgentUnavailable, CommandFailed

SYNC_SECONDS = 10.0  # a loaded emulated guest has been seen to need two
_DELIMITER = b"\xff"  # never part of UTF-8, so it ends whatever was half sent
_LINE_LIMIT = 64 * 1024 * 1024  # the agent keeps up to 16 MiB of output, sent as base64
_POLL_FIRST, _POLL_LAST = 0.02, 0.5


class OsInfo(msgspec.Struct, frozen=True, rename="kebab"):
    """What runs in the guest; every field is the guest's to leave out."""

    id: str = ""
    name: str = ""
    pretty_name: str = ""
    version: str = ""
    version_id: str = ""
    kernel_release: str = ""
    kernel_version: str = ""
    machine: str = ""


class Timezone(msgspec.Struct, frozen=True, rename="kebab"):
    """The guest's clock: seconds east of UTC, and the zone's name."""

    offset: int
    zone: str = ""


class Address(msgspec.Struct, frozen=True, rename="kebab"):
    """An IP address of an interface."""

    ip_address: str
    ip_address_type: Literal["ipv4", "ipv6"]
    prefix: int


class Interface(msgspec.Struct, frozen=True, rename="kebab"):
    """A network interface as the guest names it."""

    name: str
    hardware_address: str = ""
    ip_addresses: tuple[Address, ...] = ()


class PciAddress(msgspec.Struct, frozen=True, rename="kebab"):
    """Where the guest finds a PCI device."""

    bus: int
    slot: int
    function: int
    domain: int = 0


class FilesystemDisk(msgspec.Struct, frozen=True, rename="kebab"):
    """A disk below a file system; `target` and `unit` say which of its controller's it is."""

    bus_type: str = ""
    serial: str = ""
    dev: str = ""
    target: int = 0
    unit: int = 0
    pci_controller: PciAddress | None = None


class Filesystem(msgspec.Struct, frozen=True, rename="kebab"):
    """A mounted file system."""

    name: str
    mountpoint: str
    type: str
    used_bytes: int = 0
    total_bytes: int = 0
    disk: tuple[FilesystemDisk, ...] = ()


class User(msgspec.Struct, frozen=True, rename="kebab"):
    """Somebody logged in."""

    user: str
    login_time: float
    domain: str = ""


class Vcpu(msgspec.Struct, frozen=True, rename="kebab"):
    """A CPU by the guest's own count."""

    logical_id: int
    online: bool
    can_offline: bool = False


class AgentCommand(msgspec.Struct, frozen=True, rename="kebab"):
    """A command the agent knows, and whether it may be used."""

    name: str
    enabled: bool = True


class AgentInfo(msgspec.Struct, frozen=True):  # the one answer that is not written in kebab case
    """The agent's version and commands."""

    version: str
    supported_commands: tuple[AgentCommand, ...] = ()


class Finished(msgspec.Struct, frozen=True):
    """A command that ran in the guest."""

    exit_code: int | None  # None: ended by `signal`
    stdout: bytes
    stderr: bytes
    signal: int | None = None
    truncated: bool = False


class GuestAgent:
    """The guest agent behind one socket. Opens it at the first call; `close` when done."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._turn = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def close(self) -> None:
        """Let go of the socket; the next call opens it again."""
        streams = self._streams
        self._drop()
        if streams is not None:
            with contextlib.suppress(OSError):
                await streams[1].wait_closed()

    async def __aenter__(self) -> "GuestAgent":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def call(self, command: str, arguments: Mapping[str, object] | None = None) -> Any:
        """Run one command in the guest and return the answer as it came."""
        async with self._turn:
            try:
                await self._sync()
                self._send({"execute": command, "arguments": arguments or {}})
                answer = json.loads(await self._line())
            except BaseException as error:
                # Also when the caller gave up: a late answer must not be taken for the next one.
                self._drop()
                if isinstance(error, (OSError, EOFError, ValueError)):
                    raise AgentUnavailable(f"the guest agent went away: {error}") from error
                raise
        if "error" in answer:
            raise CommandFailed(answer["error"]["class"], answer["error"]["desc"])
        return answer["return"]

    async def ping(self) -> None:
        """Return if the agent answers."""
        await self.call("guest-ping")

    async def info(self) -> AgentInfo:
        return msgspec.convert(await self.call("guest-info"), AgentInfo)

    async def osinfo(self) -> OsInfo:
        return msgspec.convert(await self.call("guest-get-osinfo"), OsInfo)

    async def hostname(self) -> str:
        return str((await self.call("guest-get-host-name"))["host-name"])

    async def timezone(self) -> Timezone:
        return msgspec.convert(await self.call("guest-get-timezone"), Timezone)

    async def interfaces(self) -> tuple[Interface, ...]:
        answer = await self.call("guest-network-get-interfaces")
        return msgspec.convert(answer, tuple[Interface, ...])

    async def filesystems(self) -> tuple[Filesystem, ...]:
        return msgspec.convert(await self.call("guest-get-fsinfo"), tuple[Filesystem, ...])

    async def users(self) -> tuple[User, ...]:
        return msgspec.convert(await self.call("guest-get-users"), tuple[User, ...])

    async def vcpus(self) -> tuple[Vcpu, ...]:
        """Return every CPU the guest knows, by its own number."""
        found = msgspec.convert(await self.call("guest-get-vcpus"), tuple[Vcpu, ...])
        return tuple(sorted(found, key=lambda vcpu: vcpu.logical_id))

    async def set_vcpus(self, ids: Iterable[int], *, online: bool) -> int:
        """Take CPUs online or offline; return how many of them the guest dealt with.

        The guest stops at the first it cannot change, and fails only if that is the first of all.
        """
        wanted = [{"logical-id": number, "online": online} for number in ids]
        return int(await self.call("guest-set-vcpus", {"vcpus": wanted}))

    async def exec(
        self,
        path: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> Finished:
        """Run a program in the guest and return how it ended.

        A caller that gives up leaves the program running: the agent cannot stop it.
        """
        arguments: dict[str, object] = {"path": path, "arg": list(args), "capture-output": True}
        if env is not None:
            arguments["env"] = [f"{key}={value}" for key, value in env.items()]
        if stdin:
            arguments["input-data"] = base64.b64encode(stdin).decode()
        pid = (await self.call("guest-exec", arguments))["pid"]
        pause = _POLL_FIRST
        while not (status := await self.call("guest-exec-status", {"pid": pid}))["exited"]:
            await asyncio.sleep(pause)  # the agent tells nobody that a program ended
            pause = min(pause * 2, _POLL_LAST)
        return Finished(
            exit_code=status.get("exitcode"),
            signal=status.get("signal"),
            stdout=base64.b64decode(status.get("out-data", "")),
            stderr=base64.b64decode(status.get("err-data", "")),
            truncated=status.get("out-truncated", False) or status.get("err-truncated", False),
        )

    async def shutdown(self, mode: Literal["powerdown", "reboot", "halt"] = "powerdown") -> None:
        """Ask the guest to shut down. Success has no answer: look at what QEMU reports."""
        async with self._turn:
            try:
                await self._sync()
                self._send({"execute": "guest-shutdown", "arguments": {"mode": mode}})
                _, writer = await self._opened()
                await writer.drain()
            except OSError as error:
                raise AgentUnavailable(f"the guest agent went away: {error}") from error
            finally:
                self._drop()  # an error that comes after all is nobody's answer

    async def _opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            try:
                self._streams = await asyncio.open_unix_connection(self._path, limit=_LINE_LIMIT)
            except OSError as error:
                raise AgentUnavailable(f"no guest agent channel at {self._path}") from error
        return self._streams

    async def _sync(self) -> None:
        """Discard everything sent before now, or find that nobody answers."""
        number = secrets.randbelow(2**31)
        reader, writer = await self._opened()
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                writer.write(_DELIMITER)
                self._send({"execute": "guest-sync-delimited", "arguments": {"id": number}})
                while True:
                    await reader.readuntil(_DELIMITER)
                    if json.loads(await self._line()).get("return") == number:
                        return
        except TimeoutError as error:
            raise AgentUnavailable("the guest agent does not answer") from error

    def _send(self, message: Mapping[str, object]) -> None:
        assert self._streams is not None
        self._streams[1].write(json.dumps(message).encode() + b"\n")

    async def _line(self) -> bytes:
        assert self._streams is not None
        line = await self._streams[0].readuntil(b"\n")
        return line.rpartition(_DELIMITER)[2]

    def _drop(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
