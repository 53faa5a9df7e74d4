"""QEMU as a process: started so that it outlives us, found again, watched, ended.

A process is known by its id together with the moment it started, so a reused id is never taken
for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import json
import marshal
import os
import pwd
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from livevirt.errors import LivevirtError
from livevirt.node import launch

_PROC = Path("/proc")
#: The first account that exists runs QEMU when livevirt is root.
_USERS = ("qemu", "libvirt-qemu", "nobody")  # phrase: a Unix account
_START_TIME, _STATE = 19, 0  # fields of /proc/<pid>/stat after the name; proc(5) counts from 3


class SpawnFailed(LivevirtError):
    """QEMU could not be started; nothing runs."""


@dataclass(frozen=True, slots=True)
class Account:
    """Who QEMU runs as."""

    user: int
    group: int
    groups: tuple[int, ...] = ()

    @property
    def owner(self) -> tuple[int, int]:
        return self.user, self.group


@dataclass(frozen=True, slots=True)
class Process:
    """One process, now or in the past; `started` is in clock ticks since the machine booted."""

    pid: int
    started: int


def account(*, kvm: bool) -> Account | None:
    """Return an unprivileged user for QEMU, or None if we are one ourselves."""
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return Account(found.pw_uid, found.pw_gid, _kvm_group() if kvm else ())
    return Account(65534, 65534, _kvm_group() if kvm else ())


def _kvm_group() -> tuple[int, ...]:
    with contextlib.suppress(KeyError):
        return (grp.getgrnam("kvm").gr_gid,)
    return ()


@dataclass(frozen=True, slots=True)
class Order:
    """The launcher's arguments."""

    argv: Sequence[str]
    log: Path
    marker: Path
    lock: int  # an open, locked file that QEMU keeps open all its life
    cgroups: Sequence[str] = ()  # the files to enter
    account: Account | None = None
    inherited: Mapping[int, int] = field(default_factory=dict)  # descriptors, by number in QEMU


async def spawn(order: Order) -> Process | None:
    """Start QEMU; return its process, or None if it has ended already."""
    who = order.account
    arguments = {
        "program": shutil.which(order.argv[0]) or order.argv[0],
        "argv": list(order.argv),
        "log": str(order.log),
        "marker": str(order.marker),
        "cgroups": list(order.cgroups),
        "lock": order.lock,
        "inherited": dict(order.inherited),
        "user": who.user if who else None,
        "group": who.group if who else None,
        "groups": list(who.groups) if who else [],
        "env": {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
    }
    launcher = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", launch.__file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=(order.lock, *order.inherited.values()),
        start_new_session=True,
    )
    said, complaint = await launcher.communicate(marshal.dumps(arguments))
    if launcher.returncode != 0:
        raise SpawnFailed(complaint.decode(errors="replace").strip() or "the launcher failed")
    return seen(int(said))


def seen(pid: int) -> Process | None:
    """Return the process of that id, unless it is gone or dead and only waits to be buried."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(b")")[2].split()  # the name before may hold anything
    if fields[_STATE] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[_START_TIME]))


def alive(process: Process) -> bool:
    return seen(process.pid) == process


def find(argv: Sequence[str], pids: Iterable[int]) -> Process | None:
    """Return the process among these that runs this very command line."""
    wanted = b"".join(os.fsencode(each) + b"\0" for each in argv)
    for pid in pids:
        with contextlib.suppress(OSError):
            if (_PROC / str(pid) / "cmdline").read_bytes() == wanted:
                found = seen(pid)
                if found is not None:
                    return found
    return None


def all_pids() -> list[int]:
    return [int(entry) for entry in os.listdir(_PROC) if entry.isdigit()]


def note(process: Process) -> bytes:
    """Return what is kept of a process on the disk."""
    return json.dumps({"pid": process.pid, "started": process.started}).encode()


def noted(data: bytes) -> Process | None:
    """Read a note back; one that was half written is none."""
    try:
        kept = json.loads(data)
        return Process(int(kept["pid"]), int(kept["started"]))
    except (ValueError, KeyError, TypeError):
        return None


def kill(process: Process, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to this process and no other that has come by its id."""
    handle = _open(process)
    if handle is None:
        return
    try:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


async def exited(process: Process) -> None:
    """Return once the process has ended, also of another parent."""
    handle = _open(process)
    if handle is None:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def _open(process: Process) -> int | None:
    """Return a descriptor of the process, or None if it has ended."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    if not alive(process):  # the id is another process' now, or was when we opened it
        os.close(handle)
        return None
    return handle
