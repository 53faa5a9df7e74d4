"""`livevirt` that kills itself, or the QEMU it talks to, at a chosen step of a change.

    python tests/faults/fail_point.py TRACE POINT up --data-dir /tmp/f

A step is a command to QEMU, a call of the guest agent or a write to the store. Steps are counted
and written to the file TRACE, a line each, from the moment that file is there. POINT is such as
`before 2 qmp device_add`, or empty; `kill before 2 qmp device_add` kills that QEMU instead. The
step `whole` of a target is to find that it has the whole guest. Only for tests: nothing in livevirt
knows of it.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from livevirt import main
from livevirt.cli import livevirt, process
from livevirt.kube.store import Delete, Put, Store
from livevirt.node.process import all_pids as process_ids
from livevirt.qemu.agent import GuestAgent
from livevirt.qemu.session import Session
from livevirt.settings import Settings

Step = Callable[..., Awaitable[Any]]


class Trace:
    """Counts steps by their names, and ends this process at the one it was told."""

    def __init__(self, path: str, point: str) -> None:
        self._path, self._point = path, point
        self._file: int | None = None
        self._counts: collections.Counter[str] = collections.Counter()

    def wrapped(self, step: Step, name_of: Callable[..., str]) -> Step:
        """Return the step with a fail point on either side."""

        @functools.wraps(step)
        async def counted(*args: Any, **kwargs: Any) -> Any:
            name = self._counted(name_of(*args, **kwargs))
            self._perhaps_die(f"before {name}", args[0])
            try:
                return await step(*args, **kwargs)
            finally:
                self._perhaps_die(f"after {name}", args[0])

        return counted

    def _counted(self, name: str) -> str:
        """Return the step's name with its number, "" if it is too early to count."""
        if self._file is None:
            with contextlib.suppress(FileNotFoundError):
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if self._file is None:
            return ""
        self._counts[name] += 1
        numbered = f"{self._counts[name]} {name}"
        os.write(self._file, f"{numbered}\n".encode())
        return numbered

    def _perhaps_die(self, point: str, owner: object) -> None:
        if point == self._point:
            os.kill(os.getpid(), signal.SIGKILL)
        if f"kill {point}" == self._point and isinstance(owner, Session):
            os.kill(_qemu_of(owner), signal.SIGKILL)


def _qemu_of(session: Session) -> int:
    """Return the process at the other end of a session."""
    needle = os.fsencode(session._path)
    for pid in process_ids():
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if line.startswith(b"qemu-system") and needle in line:
                return pid
    raise AssertionError(f"there is no QEMU at {session._path}")


def whole_twice(execute: Step, trace: Trace) -> Step:
    """Return the execute by which a target that has the whole guest is asked once more, a step."""
    waiting: set[Session] = set()
    again = trace.wrapped(execute, lambda *_: "whole")

    @functools.wraps(execute)
    async def executed(
        session: Session, command: str, arguments: Mapping[str, object] | None = None
    ) -> Any:
        answer = await execute(session, command, arguments)
        if command == "migrate-incoming":
            waiting.add(session)
        if command == "query-status" and session in waiting and answer["status"] != "inmigrate":
            waiting.discard(session)
            return await again(session, command, arguments)
        return answer

    return executed


def qmp_name(_: Session, command: str, arguments: Mapping[str, object] | None = None) -> str:
    return f"qmp {command}"


def agent_name(_: GuestAgent, command: str, *rest: object) -> str:
    return f"agent {command}"


def write_name(_: Store, *changes: Put | Delete) -> str:
    return f"write {' '.join(change.key.resource for change in changes)}"


def run_here(settings: Settings) -> None:
    """Be the server in this process, where the fail points are."""
    sys.argv[1:] = [msgspec.json.encode(settings).decode()]
    main.main()


if __name__ == "__main__":
    trace = Trace(*sys.argv[1:3])
    for owner, name, name_of in (
        (Session, "execute", qmp_name),
        (GuestAgent, "ask", agent_name),
        (Store, "write", write_name),
    ):
        setattr(owner, name, trace.wrapped(getattr(owner, name), name_of))
    setattr(Session, "execute", whole_twice(Session.execute, trace))  # noqa: B010
    process.run = run_here  # type: ignore[assignment]
    del sys.argv[1:3]
    livevirt.main()
