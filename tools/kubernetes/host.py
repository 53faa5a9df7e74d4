"""Run programs, report progress and take locks on the host."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "livevirt" / "kubernetes"


class ClusterError(Exception):
    """A failure to report to the user without a traceback."""


def say(message: str) -> None:
    """Print a line of progress; a reader that has gone away must not stop the clean-up."""
    with contextlib.suppress(BrokenPipeError):
        print(f"cluster: {message}", flush=True)


def run(
    argv: Sequence[str | Path],
    *,
    text: str | None = None,
    stdin: IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Run a program and return its output; raise ClusterError with its complaint."""
    done = subprocess.run(
        [str(word) for word in argv],
        input=None if text is None else text.encode(),
        stdin=stdin,
        capture_output=True,
        env=env,
        cwd=cwd,
    )
    if done.returncode:
        complaint = done.stderr.decode(errors="replace").strip()
        command = " ".join(str(word) for word in argv)
        raise ClusterError(f"command failed ({done.returncode}): {command}\n{complaint}")
    return done.stdout.decode(errors="replace")


def wait_until(condition: Callable[[], bool], seconds: float, interval: float = 0.1) -> bool:
    """Return whether the condition became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval)
    return True


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore requests to stop while cleaning up."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Hold KeyboardInterrupt back until a step is complete.

    Blocking or ignoring the signals instead would be inherited by the programs we start.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives it
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    pending: list[int] = []
    handlers = [signal.signal(number, lambda got, _: pending.append(got)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)
    if pending:
        raise KeyboardInterrupt


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, waiting for other processes; its file exists only meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_file(path, lock.fileno()):
                continue  # the previous holder has removed the file we waited for
            try:
                yield
                return
            finally:
                path.unlink()


def _is_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
