"""A QMP session: commands, and events that end with an error when QEMU goes away.

A thin shell over `qemu.qmp`. It never reconnects by itself: after `Disconnected` the outcome of
what was asked is unknown, so the caller must connect again and observe.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from qemu.qmp import ExecInterruptedError, ExecuteError, Message, QMPClient, Runstate, StateError
from qemu.qmp import QMPError as ForeignError

from livevirt.files import unix_socket
from livevirt.qemu.errors import CommandFailed, Disconnected

log = logging.getLogger(__name__)

COMMAND_SECONDS = 30.0  # for any command; what takes longer in QEMU is a job, and reports events

# The library reports every refused connection and every EOF as an error; ours raises instead.
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class Event:
    """Something QEMU said by itself."""

    name: str
    data: dict[str, Any]


class Events:
    """The events a listener asked for, in order; iterating raises `Disconnected` at the end."""

    def __init__(self, names: frozenset[str], path: str) -> None:
        self._names = names
        self._path = path
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self._queue.get()
        if event is None:
            self._queue.put_nowait(None)  # for the next call
            raise Disconnected(f"QEMU at {self._path} went away")
        return event

    def waiting(self) -> list[Event]:
        """Return the events that are there already, without waiting for one."""
        found = []
        while not self._queue.empty():
            event = self._queue.get_nowait()
            if event is None:
                self._queue.put_nowait(None)  # for the next call
                break
            found.append(event)
        return found

    def _put(self, event: Event | None) -> None:
        if event is None or not self._names or event.name in self._names:
            self._queue.put_nowait(event)


class _Client(QMPClient):
    """The library's client, which does not write to a connection that it knows to be lost.

    An observation sends many commands at once. If QEMU is gone by then, asyncio warns about every
    write after the fifth: "socket.send() raised exception."
    """

    def _do_send(self, msg: Message) -> None:
        assert self._writer is not None
        if self._writer.is_closing():
            raise EOFError("QEMU has closed the connection")
        super()._do_send(msg)


class Session:
    """One connection to QEMU's monitor. Make it with `connect`, end it with `close`."""

    def __init__(self, client: QMPClient, line: socket.socket, path: str) -> None:
        self._client = client
        self._line = line  # for file descriptors, which the client's streams cannot carry
        self._sending_file = asyncio.Lock()
        self._path = path
        self._listeners: list[Events] = []
        # The library keeps for ever each event its own listener accepts. Used as a filter that
        # accepts none, it hands us all of them and keeps nothing.
        client.events.event_filter = self._deliver
        self._hang_up = asyncio.Event()
        self._watch = asyncio.create_task(self._until_gone(), name=f"qmp watch {path}")

    @classmethod
    async def connect(cls, path: str) -> "Session":
        """Connect and negotiate; waits as long as another client holds the monitor."""
        client = _Client()
        line: socket.socket | None = None
        copy: socket.socket | None = None
        try:
            line = await unix_socket.connect(path)
            copy = line.dup()
            await client.connect(copy)
        except BaseException as error:
            for end in filter(None, (copy, line)):
                end.close()
            if isinstance(error, (ForeignError, OSError)):
                raise Disconnected(f"cannot talk to QEMU at {path}: {error}") from error
            raise
        return cls(client, line, path)

    @property
    def connected(self) -> bool:
        return not self._watch.done()

    async def closed(self) -> None:
        """Return once the session is over, by either side."""
        await asyncio.shield(self._watch)

    async def close(self) -> None:
        """Hang up; QEMU runs on."""
        self._hang_up.set()
        await asyncio.shield(self._watch)

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def execute(self, command: str, arguments: Mapping[str, object] | None = None) -> Any:
        """Run one command and return QEMU's answer.

        A QEMU that does not answer in time counts as gone: the outcome is unknown.
        """
        try:
            async with asyncio.timeout(COMMAND_SECONDS) as deadline:
                return await self._client.execute(command, arguments)
        except TimeoutError as error:
            if not deadline.expired():
                raise  # the caller's own deadline
            raise Disconnected(
                f"QEMU at {self._path} did not answer {command} within {COMMAND_SECONDS:.0f} s"
            ) from error
        except ExecuteError as error:
            raise CommandFailed(error.error_class, str(error)) from error
        except (ExecInterruptedError, StateError) as error:
            raise Disconnected(f"QEMU at {self._path} went away during {command}") from error

    async def send_file(self, fd: int) -> int:
        """Hand QEMU an open file; it opens it again as `/dev/fdset/<the number returned>`."""
        async with self._sending_file:
            if not self.connected:
                raise Disconnected(f"QEMU at {self._path} went away")
            # The descriptor rides on a space between two commands; QEMU keeps the last it got.
            socket.send_fds(self._line, [b" "], [fd])
            added = await self.execute("add-fd")
        return int(added["fdset-id"])

    @contextmanager
    def listen(self, *names: str) -> Iterator[Events]:
        """Collect events from now on; all of them if no name is given."""
        events = Events(frozenset(names), self._path)
        self._listeners.append(events)
        if not self.connected:
            events._put(None)
        try:
            yield events
        finally:
            self._listeners.remove(events)

    def _deliver(self, message: Mapping[str, Any]) -> bool:
        event = Event(message["event"], message.get("data", {}))
        for listener in self._listeners:
            listener._put(event)
        return False

    async def _until_gone(self) -> None:
        ends = [
            asyncio.ensure_future(self._client_stopped()),
            asyncio.ensure_future(self._hang_up.wait()),
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        try:
            await self._client.disconnect()  # also collects what made the reader stop
        except Exception as error:
            log.debug("QMP session ended", extra={"path": self._path, "error": str(error)})
        self._line.close()
        for listener in self._listeners:
            listener._put(None)

    async def _client_stopped(self) -> None:
        while self._client.runstate is Runstate.RUNNING:
            await self._client.runstate_changed()
