"""What the guest reports about itself, through the guest agent's channel.

The channel has no notion of a connection to the agent: bytes may go to an agent that died, and
answers to a caller that gave up may still be on their way. So every call first agrees on a random
number (`guest-sync-delimited`); who does not answer that in time is not there. The socket stays
open between calls, since an agent without a peer polls its port all the time.

What is in the guest need not be an agent at all. So an answer may only be so long, must come in
time, and must say what was asked for; anything else is as good as none: AgentUnavailable. Who has
less time than that uses `asyncio.timeout`. A call that was given up costs the connection only.
"""

import asyncio
import base64
import contextlib
import functools
import ipaddress
import json
import re
import secrets
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, Self, TypeVar, cast

import msgspec

from livevirt.files import unix_socket
from livevirt.qemu.errors import AgentUnavailable, CommandFailed

GET_FSINFO = "guest-get-fsinfo"
SYNC_SECONDS = 10.0  # a loaded emulated guest has been seen to need two
ANSWER_SECONDS = 60.0  # for each chunk of an answer: CPUs come slowly in a loaded emulated guest
_DELIMITER = b"\xff"  # never part of UTF-8, so it ends whatever was half sent
_CHUNK = 1024 * 1024
_LONGEST = 2 * 1024 * 1024  # of an answer; some 4000 file systems
_LONGEST_OUTPUT = 64 * 1024 * 1024  # the agent keeps twice 16 MiB of output, sent as base64
_MOST_LISTED = 8192  # CPUs, interfaces, file systems or users
_LONGEST_NAME = 256  # characters of a name that the guest gives
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5,19}")
_LONGEST_TEXT = 500  # characters of the guest's in a message of ours
_POLL_FIRST, _POLL_LAST = 0.02, 0.5

T = TypeVar("T")


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
    """A logged-in user."""

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


class _Refusal(msgspec.Struct, frozen=True, rename={"kind": "class"}):
    kind: str
    desc: str = ""


class _Answer(msgspec.Struct, Generic[T], frozen=True, rename={"value": "return"}):
    value: T | msgspec.UnsetType = msgspec.UNSET
    error: _Refusal | None = None


@functools.lru_cache(64)
def _decoder(type_: Hashable) -> msgspec.json.Decoder[_Answer[Any]]:
    """Return what decodes an answer of a type; what the type does not name is never built."""
    return msgspec.json.Decoder(_Answer[type_])  # type: ignore[valid-type]


def _listed(type_: Any) -> Any:
    """Return the type of a list that the guest can make only so long."""
    return Annotated[tuple[type_, ...], msgspec.Meta(max_length=_MOST_LISTED)]


class _HostName(msgspec.Struct, frozen=True, rename="kebab"):
    host_name: str


class _Program(msgspec.Struct, frozen=True):
    pid: int


class _ProgramStatus(msgspec.Struct, frozen=True, rename="kebab"):
    exited: bool
    exitcode: int | None = None
    signal: int | None = None
    out_data: bytes = b""
    err_data: bytes = b""
    out_truncated: bool = False
    err_truncated: bool = False


class AgentChannel:
    """The socket of a guest agent. Opens it at the first call; `close` when done."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._turn = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def close(self) -> None:
        """Close the socket; the next call opens it again."""
        streams = self._streams
        self.hang_up()
        if streams is not None:
            with contextlib.suppress(OSError):
                await streams[1].wait_closed()

    def hang_up(self) -> None:
        """Close the socket at once: calls that still wait for an answer fail."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def call(self, command: str, arguments: Mapping[str, object] | None = None) -> Any:
        """Run one command in the guest and return the answer as it came."""
        return await self.ask(command, Any, arguments)

    async def ask(
        self, command: str, type_: type[T], arguments: Mapping[str, object] | None = None
    ) -> T:
        """Run one command in the guest and return the answer as that type."""
        longest = _LONGEST_OUTPUT if command == "guest-exec-status" else _LONGEST
        async with self._turn:
            try:
                with _understood(command):
                    reader, writer = await self._synced()
                    _send(writer, command, arguments or {})
                    answer = _decoder(cast(Hashable, type_)).decode(await _line(reader, longest))
                    if answer.value is msgspec.UNSET and answer.error is None:
                        raise ValueError("it is neither a result nor an error")
            except BaseException:
                # Also when the caller gave up: a late answer must not be taken for the next one.
                self.hang_up()
                raise
        if answer.error is not None:
            raise CommandFailed(_short(answer.error.kind), _short(answer.error.desc))
        return cast(T, answer.value)

    async def send(self, command: str, arguments: Mapping[str, object]) -> None:
        """Send a command that has no answer when it succeeds."""
        async with self._turn:
            try:
                with _understood(command):
                    _, writer = await self._synced()
                    _send(writer, command, arguments)
                    await writer.drain()
            finally:
                self.hang_up()  # a late error answers nothing

    async def _synced(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Discard everything sent before now, or find that the agent does not answer."""
        number = secrets.randbelow(2**31)
        async with asyncio.timeout(SYNC_SECONDS):
            reader, writer = await self._opened()
            writer.write(_DELIMITER)
            _send(writer, "guest-sync-delimited", {"id": number})
            while True:
                await _skip(reader)
                if _is_reply(await _line(reader, _LONGEST), number):
                    return reader, writer

    async def _opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            try:
                self._streams = await unix_socket.open_streams(self._path, _CHUNK)
            except OSError as error:
                raise AgentUnavailable(f"no guest agent channel at {self._path}") from error
        return self._streams


class GuestAgent(AgentChannel):
    """The commands of a guest agent, with typed answers."""

    async def ping(self) -> None:
        """Return if the agent answers."""
        await self.call("guest-ping")

    async def info(self) -> AgentInfo:
        return await self.ask("guest-info", AgentInfo)

    async def osinfo(self) -> OsInfo:
        found = await self.ask("guest-get-osinfo", OsInfo)
        return OsInfo(*map(printable, msgspec.structs.astuple(found)))

    async def hostname(self) -> str:
        return printable((await self.ask("guest-get-host-name", _HostName)).host_name)

    async def timezone(self) -> Timezone:
        found = await self.ask("guest-get-timezone", Timezone)
        return Timezone(found.offset, printable(found.zone))

    async def interfaces(self) -> tuple[Interface, ...]:
        found = await self.ask("guest-network-get-interfaces", _listed(Interface))
        return tuple(map(_valid_interface, found))

    async def filesystems(self) -> tuple[Filesystem, ...]:
        return await self.ask(GET_FSINFO, _listed(Filesystem))

    async def users(self) -> tuple[User, ...]:
        return await self.ask("guest-get-users", _listed(User))

    async def vcpus(self) -> tuple[Vcpu, ...]:
        """Return every CPU the guest knows, by its own number."""
        found = await self.ask("guest-get-vcpus", _listed(Vcpu))
        return tuple(sorted(found, key=lambda vcpu: vcpu.logical_id))

    async def set_vcpus(self, ids: Iterable[int], *, online: bool) -> int:
        """Take CPUs online or offline; return how many of them the guest dealt with.

        The guest stops at the first it cannot change, and fails only if that is the first of all.
        """
        wanted = [{"logical-id": number, "online": online} for number in ids]
        return await self.ask("guest-set-vcpus", int, {"vcpus": wanted})

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
        program = {"pid": (await self.ask("guest-exec", _Program, arguments)).pid}
        pause = _POLL_FIRST
        while not (status := await self.ask("guest-exec-status", _ProgramStatus, program)).exited:
            await asyncio.sleep(pause)  # the agent sends no event when a program ends
            pause = min(pause * 2, _POLL_LAST)
        return Finished(
            exit_code=status.exitcode,
            signal=status.signal,
            stdout=status.out_data,
            stderr=status.err_data,
            truncated=status.out_truncated or status.err_truncated,
        )

    async def shutdown(self, mode: Literal["powerdown", "reboot", "halt"] = "powerdown") -> None:
        """Ask the guest to shut down. Success has no answer: look at what QEMU reports."""
        await self.send("guest-shutdown", {"mode": mode})


@contextlib.contextmanager
def _understood(command: str) -> Iterator[None]:
    """Turn whatever comes of a missing, odd or endless answer into AgentUnavailable."""
    try:
        yield
    except TimeoutError as error:
        raise AgentUnavailable("the guest agent does not answer") from error
    except (OSError, EOFError) as error:
        raise AgentUnavailable(f"the guest agent went away: {error}") from error
    except (ValueError, ArithmeticError, RecursionError) as error:
        message = f"the guest agent's answer to {command} makes no sense: {_short(str(error))}"
        raise AgentUnavailable(message) from error


def _is_reply(line: bytes, number: int) -> bool:
    """Return whether a line answers the agreement on a number."""
    try:
        return _decoder(int).decode(line).value == number
    except msgspec.ValidationError:
        return False  # a late answer to an earlier call


def printable(text: str) -> str:
    """Return a text of the guest's that is safe to show: one line, and not too long."""
    return "".join(each if each.isprintable() else "?" for each in text[:_LONGEST_NAME])


def _valid_interface(interface: Interface) -> Interface:
    """Return an interface without addresses that are none."""
    mac = interface.hardware_address
    return Interface(
        printable(interface.name),
        mac if _MAC.fullmatch(mac) else "",
        tuple(filter(_is_address, interface.ip_addresses)),
    )


def _is_address(found: Address) -> bool:
    try:
        address = ipaddress.ip_address(found.ip_address)
    except ValueError:
        return False
    return f"ipv{address.version}" == found.ip_address_type and (
        0 <= found.prefix <= address.max_prefixlen
    )


def _send(writer: asyncio.StreamWriter, command: str, arguments: Mapping[str, object]) -> None:
    message = {"execute": command, "arguments": arguments}
    writer.write(json.dumps(message).encode() + b"\n")


async def _line(reader: asyncio.StreamReader, longest: int) -> bytes:
    """Return what comes up to the end of a line; raises ValueError if that is too far away."""
    line = bytearray()
    while not line.endswith(b"\n"):
        if len(line) > longest:
            raise ValueError(f"it is longer than {longest} bytes")
        async with asyncio.timeout(ANSWER_SECONDS):
            try:
                line += await reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as more:
                line += await reader.readexactly(more.consumed)
    return bytes(line).rpartition(_DELIMITER)[2]


async def _skip(reader: asyncio.StreamReader) -> None:
    """Discard everything up to the next delimiter."""
    while True:
        try:
            await reader.readuntil(_DELIMITER)
            return
        except asyncio.LimitOverrunError as more:
            await reader.readexactly(more.consumed)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
