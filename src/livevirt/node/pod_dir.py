"""The files of one pod on this node: what was intended, what came of it, logs, sockets.

Directories can be passed through and not listed, so QEMU, which runs as another user, reaches
the files that are its own and sees nothing of the rest. The sockets lie elsewhere because their
paths must be short. That directory is made after this one and removed before it: no socket is
ever without an owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from livevirt.files import durable
from livevirt.node import ending, intent
from livevirt.node.ending import Ending
from livevirt.node.intent import Intent, Leaving, UnknownIntent

_PASS_THROUGH = 0o711
_LOG_TAIL = 2000  # bytes of stderr worth showing on an object


class PodDir:
    """One pod's files. Nothing is made before `create`."""

    def __init__(self, pods: Path, run: Path, uid: str) -> None:
        if not uid or "/" in uid or uid.startswith("."):
            raise ValueError(f"{uid!r} is not a uid")
        self.uid = uid
        self.root = pods / uid
        self.run = run / hashlib.sha256(uid.encode()).hexdigest()[:8]

    @property
    def stderr(self) -> Path:
        """What QEMU printed; `kubectl logs` shows it."""
        return self.root / "qemu.log"

    @property
    def serial(self) -> Path:
        """What the guest last wrote to its serial port."""
        return self.root / "serial.log"

    @property
    def logs(self) -> tuple[Path, Path]:
        """What is written for as long as QEMU runs."""
        return self.stderr, self.serial

    @property
    def lock(self) -> Path:
        """Locked by QEMU for as long as it lives, and by its launcher before."""
        return self.root / "lock"

    @property
    def spawned(self) -> Path:
        """Exists from the moment QEMU was really started."""
        return self.root / "spawned"

    @property
    def process(self) -> Path:
        """QEMU's process id and start time."""
        return self.root / "process"

    @property
    def arrived(self) -> Path:
        """Exists before a guest that came from elsewhere runs here; none is refused after that."""
        return self.root / "arrived"

    @property
    def left(self) -> Path:
        """Exists once the guest is known to run elsewhere."""
        return self.root / "left"

    @property
    def reboot(self) -> Path:
        """Exists while a guest that shuts down is to be switched on again."""
        return self.root / "reboot"

    @property
    def _departure(self) -> Path:
        return self.root / "departure.json"

    @property
    def _intent(self) -> Path:
        return self.root / "intent.json"

    @property
    def _ending(self) -> Path:
        return self.root / "ending.json"

    def create(self, owner: tuple[int, int] | None) -> None:
        """Make the directories and empty logs; `owner` is the user and group QEMU runs as."""
        for folder in (*reversed(self.root.parents[:3]), self.root):
            folder.mkdir(mode=_PASS_THROUGH, exist_ok=True)
        for log in self.logs:
            handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                if owner is not None:
                    os.fchown(handle, *owner)
            finally:
                os.close(handle)

    def create_run(self, owner: tuple[int, int] | None) -> None:
        """Make the directory of the sockets, QEMU's own."""
        self.run.parent.mkdir(mode=_PASS_THROUGH, exist_ok=True)
        self.run.mkdir(mode=0o700, exist_ok=True)
        if owner is not None:
            os.chown(self.run, *owner, follow_symlinks=False)

    def write_intent(self, what: Intent) -> None:
        """Keep the intent durably, and the way to it."""
        durable.write(self._intent, intent.encode(what))
        for folder in self.root.parents[:2]:
            durable.sync(folder)

    def read_intent(self) -> Intent | None:
        """Return the intent if one was written."""
        with contextlib.suppress(FileNotFoundError):
            return intent.decode(self._intent.read_bytes())
        return None

    def write_ending(self, what: Ending) -> None:
        """Keep durably how the guest ended."""
        durable.write(self._ending, ending.encode(what))

    def read_ending(self) -> Ending | None:
        """Return how the guest ended, if that was written."""
        with contextlib.suppress(FileNotFoundError):
            return ending.decode(self._ending.read_bytes())
        return None

    def begin_arrival(self) -> None:
        """Decide, at once, that a guest has come and may run here."""
        self.arrived.touch()

    def keep_arrival(self) -> None:
        """Keep that durably."""
        durable.sync(self.root)

    def note_left(self) -> None:
        """Keep durably that the guest runs elsewhere."""
        durable.write(self.left, b"")

    def note_departure(self, what: Leaving) -> None:
        """Keep durably that a guest is being sent away."""
        durable.write(self._departure, msgspec.json.encode(what))

    def read_departure(self) -> Leaving | None:
        """Return what was noted of a guest that is being sent away."""
        with contextlib.suppress(FileNotFoundError):
            return msgspec.json.decode(self._departure.read_bytes(), type=Leaving)
        return None

    def forget_departure(self) -> None:
        """Forget the note: the guest stays."""
        self._departure.unlink(missing_ok=True)

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
        """Whether QEMU, or what is about to become it, is there."""
        if not self.lock.exists():
            return False
        handle = self.take_lock()
        if handle is None:
            return True
        os.close(handle)
        return False

    def complaint(self) -> str:
        """Return the end of what QEMU printed."""
        with contextlib.suppress(FileNotFoundError), self.stderr.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _LOG_TAIL))
            return file.read().decode(errors="replace").strip()
        return ""

    def complain(self, text: str) -> None:
        """Add a line of ours to what QEMU printed."""
        with self.stderr.open("a") as file:
            file.write(f"{text}\n")

    def remove_run(self) -> None:
        """Remove the sockets."""
        shutil.rmtree(self.run, ignore_errors=True)

    def remove(self) -> None:
        """Remove everything: sockets first, then the intent, without which the rest means nothing.

        Whoever finds half of it must not take it for a guest of which less was ever known.
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


def intended(nodes: Path, run: Path) -> set[str] | None:
    """Return the uids of the instances that some node of this machine has begun to run.

    None if that cannot be told: an intent is of a livevirt that knows more than this one.
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
