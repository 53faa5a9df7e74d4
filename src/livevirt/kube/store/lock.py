"""The lock that gives one process the database."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from livevirt.kube.store.errors import StoreLocked, StoreUnusable


class Lock:
    """An exclusive lock on `<path>.lock`, released by `release` or by the end of the process.

    The file stays: removing it would let two processes lock two files of one name.
    """

    def __init__(self, path: Path) -> None:
        file = path.with_name(path.name + ".lock")
        try:
            self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreUnusable(
                f"cannot make {file}: {error.strerror}; check its directory's owner and permissions"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _name(os.pread(self._descriptor, 20, 0))
            os.close(self._descriptor)
            raise StoreLocked(
                f"{path} is in use by {holder}; stop it, or choose another data directory"
            ) from error
        except OSError as error:
            os.close(self._descriptor)
            raise StoreUnusable(f"cannot lock {file}: {error.strerror}") from error
        # A full disk may refuse the process id, which only makes a message more helpful.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let the next process have the database."""
        os.close(self._descriptor)


def _name(content: bytes) -> str:
    """Describe the process that wrote its id into the lock file."""
    try:
        pid = int(content)
    except ValueError:
        return "another process"
    try:
        command = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({command})"
