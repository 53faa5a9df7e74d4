"""The files of one pod on this node: what was intended, what came of it, logs, sockets."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from livevirt.files import durable, private
from livevirt.node import exit_record, intent
from livevirt.node import process as processes
from livevirt.node.cgroups import PodCgroup
from livevirt.node.exit_record import ExitRecord
from livevirt.node.intent import Intent, UnknownIntent
from livevirt.node.migration.handover import MigrationNotes
from livevirt.node.process import Process

_LOG_TAIL = 2000  # bytes of stderr worth showing on an object


class PodDir:
    """One pod's files. Nothing is made before `create`."""

    def __init__(self, pods: Path, run: Path, uid: str) -> None:
        if not uid or "/" in uid or uid.startswith("."):
            raise ValueError(f"{uid!r} is not a uid")
        self.uid = uid
        self.root = root = pods / uid
        self.run = run / hashlib.sha256(uid.encode()).hexdigest()[:8]  # sockets
        self.stderr = root / "qemu.log"  # what QEMU printed; `kubectl logs` shows it
        self.serial = root / "serial.log"  # what the guest last wrote to its serial port
        self.qemu_run, self.qemu_serial = self.run, self.serial  # the same, as QEMU sees them
        self.logs: tuple[Path, ...] = (self.stderr, self.serial)  # written for as long as QEMU runs
        self.lock = root / "lock"  # held by QEMU while it lives, and by its launcher before
        self.spawned = root / "spawned"  # exists from the moment QEMU was really started
        self.process = root / "process"  # QEMU's process id and start time
        self.reboot = root / "reboot"  # exists while a guest that shuts down is to be restarted
        self.migration = MigrationNotes(root)
        self._intent = root / "intent.json"
        self._ending = root / "ending.json"

    def create(self, owner: tuple[int, int] | None) -> None:
        """Create the directories and empty logs; `owner` is the user and group QEMU runs as."""
        for folder in (*reversed(self.root.parents[:3]), self.root):
            private.folder(folder)
        for log in self.logs:
            handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                if owner is not None:
                    os.fchown(handle, *owner)
            finally:
                os.close(handle)

    def create_run(self, owner: tuple[int, int] | None) -> None:
        """Create the directory of the sockets, which QEMU owns."""
        private.folder(self.run.parent)
        private.folder(self.run, 0o700)
        if owner is not None:
            os.chown(self.run, *owner, follow_symlinks=False)

    def write_intent(self, what: Intent) -> None:
        """Write the intent durably, with the directories that lead to it."""
        durable.write(self._intent, intent.encode(what))
        for folder in self.root.parents[:2]:
            durable.sync(folder)

    def read_intent(self) -> Intent | None:
        """Return the intent if one was written."""
        with contextlib.suppress(FileNotFoundError):
            return intent.decode(self._intent.read_bytes())
        return None

    def write_ending(self, what: ExitRecord) -> None:
        """Record durably how the guest ended."""
        durable.write(self._ending, exit_record.encode(what))

    def read_ending(self) -> ExitRecord | None:
        """Return how the guest ended, if that was written."""
        with contextlib.suppress(FileNotFoundError):
            return exit_record.decode(self._ending.read_bytes())
        return None

    def take_lock(self) -> int | None:
        """Return the locked file, to be inherited by QEMU; None while a process holds it."""
        handle = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return handle

    def locked(self) -> bool:
        """Return whether QEMU, or its launcher, is running."""
        if not self.lock.exists():
            return False
        handle = self.take_lock()
        if handle is None:
            return True
        os.close(handle)
        return False

    def find(self, intent: Intent) -> Process | None:
        """Return the process that was intended, if it runs."""
        found = processes.find(intent.argv, PodCgroup(intent.cgroups).pids())
        if found is not None:
            return found
        with contextlib.suppress(FileNotFoundError):
            noted = processes.noted(self.process.read_bytes())
            if noted is not None and processes.alive(noted):
                return noted
        return processes.find(intent.argv, processes.all_pids())

    def note_process(self, note: bytes) -> None:
        """Note which process is QEMU, if its cgroup does not show it; a full disk may refuse it."""
        try:
            self.process.write_bytes(note)
        except OSError as error:
            log.warning("process not noted", extra={"pod": self.uid, "error": str(error)})

    def complaint(self) -> str:
        """Return the end of what QEMU printed."""
        with contextlib.suppress(FileNotFoundError), self.stderr.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _LOG_TAIL))
            return file.read().decode(errors="replace").strip()
        return ""

    def complain(self, text: str) -> None:
        """Add a line of ours to what QEMU printed; a full disk may refuse it."""
        with contextlib.suppress(OSError), self.stderr.open("a") as file:
            file.write(f"{text}\n")

    def remove_run(self) -> None:
        """Remove the sockets."""
        shutil.rmtree(self.run, ignore_errors=True)

    def remove(self) -> None:
        """Remove everything: sockets first, then the intent, without which the rest means nothing.

        A half-removed directory must not look like a guest about which less was ever known.
        """
        self.remove_run()
        self._intent.unlink(missing_ok=True)
        shutil.rmtree(self.root, ignore_errors=True)


def all_in(pods: Path, run: Path) -> Iterator[PodDir]:
    """Yield every pod that left something on this node."""
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(pods.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                yield PodDir(pods, run, entry.name)


def running_intents(nodes: Path, run: Path) -> Iterator[Intent]:
    """Yield the intents of guests that some node of this machine runs, as far as is known.

    What a newer livevirt wrote is left out: its guests cannot be followed either.
    """
    with contextlib.suppress(FileNotFoundError):
        for node in nodes.iterdir():
            for folder in all_in(node / "pods", run):
                with contextlib.suppress(UnknownIntent):
                    what = folder.read_intent()
                    if what is not None and folder.read_ending() is None:
                        yield what


def intended(nodes: Path, run: Path) -> set[str] | None:
    """Return the uids of the instances that some node of this machine has begun to run.

    None if that is unknown, because an intent was written by a newer livevirt.
    """
    found = set()
    with contextlib.suppress(FileNotFoundError):
        for node in nodes.iterdir():
            for folder in all_in(node / "pods", run):
                try:
                    what = folder.read_intent()
                except UnknownIntent:
                    return None
                if what is not None:
                    found.add(what.vmi_uid)
    return found


log = logging.getLogger(__name__)

MOST_BYTES = 8 * 2**20
KEPT_BYTES = 4 * 2**20  # of one that was longer
LOOK_SECONDS = 10.0  # in which a guest at a serial port writes some MiB


async def keep_short(logs: Callable[[], Iterable[Path]]) -> None:
    """Cut these logs whenever they are too long, until cancelled."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        await asyncio.to_thread(_shorten_all, list(logs()))


def shorten(path: Path) -> None:
    """Cut a log that is too long down to its last lines."""
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(handle).st_size
        if size > MOST_BYTES:
            _move_tail(handle, size - KEPT_BYTES)
    finally:
        os.close(handle)


def _move_tail(handle: int, start: int) -> None:
    """Let a file begin with the first line after `start`. Who appends to it may go on."""
    kept = 0
    while part := os.pread(handle, KEPT_BYTES, start):  # also what comes while we are at it
        start += len(part)
        kept += os.pwrite(handle, part if kept else part[part.find(b"\n") + 1 :], kept)
    os.ftruncate(handle, kept)


def _shorten_all(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            shorten(path)
        except FileNotFoundError:
            continue  # not made yet, or its pod has gone
        except OSError as error:
            log.warning("log not cut", extra={"path": str(path), "error": str(error)})
