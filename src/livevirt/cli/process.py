"""The server as a process: run it here, start it in the background, stop it, look at it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
import msgspec

from livevirt.errors import LivevirtError
from livevirt.files import private
from livevirt.files.reserve import Reserve
from livevirt.paths import DataDir
from livevirt.settings import Settings

if TYPE_CHECKING:
    from livevirt.kube.store.lock import Lock

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Where everything is kept (default: /var/lib/livevirt as root, else"
    " ~/.local/share/livevirt).",
)
_MODULE = "livevirt.main"
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0


class ProcessError(LivevirtError):
    """The server did not start or stop as asked."""


def run(settings: Settings) -> NoReturn:
    """Become the server, until it is stopped."""
    command = _command(settings)
    os.execv(command[0], command)


def detach(data: DataDir, settings: Settings) -> None:
    """Start the server in the background and return once its API answers."""
    running = running_pid(data)
    if running is not None:
        raise ProcessError(
            f"livevirt already runs on {data.root} (process {running}). Stop it with:"
            f" livevirt down --data-dir {data.root}"
        )
    data.check()
    private.folders(data.root)
    backups = _names(data.backups)
    left = _written(data.pid)  # where ids repeat, it may name the process we start
    with open(data.log, "ab", opener=_private) as log:
        start = log.tell()
        child = subprocess.Popen(
            _command(settings),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + _START_SECONDS
    while running_pid(data) != child.pid or _written(data.pid) == left:
        if child.poll() is not None:
            raise ProcessError(f"livevirt did not start: {_last_words(data.log, start)}")
        if time.monotonic() > deadline:
            child.kill()
            raise ProcessError(
                f"livevirt was not ready within {_START_SECONDS:.0f} s; see {data.log}"
            )
        time.sleep(0.02)  # another process writes the file we wait for
    for name in sorted(_names(data.backups) - backups):
        click.echo(
            f"upgraded the data of an older livevirt; backup {data.backups / name}, restored by:"
            f" livevirt rollback --data-dir {data.root}"
        )
    click.echo(f"ready: {_url(data)}, kubeconfig {data.kubeconfig}, log {data.log}")


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner may read, for `open`."""
    return os.open(path, flags, private.FILE)


def _names(folder: Path) -> set[str]:
    """Return the names in a folder that need not be there."""
    return {file.name for file in folder.glob("[!.]*.db")}


def _written(file: Path) -> int | None:
    """Return when a file was written last, None if there is none."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _command(settings: Settings) -> list[str]:
    try:
        given = msgspec.json.encode(settings).decode()
    except UnicodeEncodeError as error:
        raise ProcessError(f"{error.object!a} is no text in UTF-8; choose another") from None
    return [sys.executable, "-m", _MODULE, given]


def _last_words(log: Path, start: int) -> str:
    with log.open("rb") as file:
        file.seek(start)
        lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line]
    return lines[-1].removeprefix("error: ") if lines else f"see {log}"


def stop(data: DataDir, *, stop_guests: bool = False) -> None:
    """Stop the server and wait until it is gone; then its guests too, if asked for."""
    pid = running_pid(data)
    if pid is None:
        click.echo(f"no livevirt server is running for {data.root}")
    else:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while _serves(pid, data.root):
            if time.monotonic() > deadline:
                raise ProcessError(
                    f"process {pid} did not stop within {_STOP_SECONDS:.0f} s; its log"
                    f" ({data.log}, if it was detached) may say why. End it with"
                    f" `kill -KILL {pid}`: guests run on, and the next `livevirt up` finds them"
                )
            time.sleep(0.02)  # not our child, so there is nothing to wait on
        click.echo(f"stopped livevirt on {data.root}")
    left = len(list(data.run.iterdir())) if data.run.exists() else 0
    if stop_guests and (left or data.network.exists()):
        _stop_guests(data)
    elif left:
        click.echo("its guests run on; stop them too with --guests stop")


def _stop_guests(data: DataDir) -> None:
    from livevirt.node import shutdown  # imports what stopping a server does not need
    from livevirt.node.network import network

    lock = _lock(data)  # no server starts guests while we stop them
    try:
        asyncio.run(shutdown.stop_guests(data, lambda: datetime.now(UTC), click.echo))
        asyncio.run(network.remove(data.network))
    finally:
        if lock is not None:
            lock.release()


def _lock(data: DataDir) -> Lock | None:
    """Return the lock of the data directory; None where the disk refuses it.

    Guests have to be stopped on a disk that takes no writes, too.
    """
    from livevirt.kube.store.errors import StoreUnusable
    from livevirt.kube.store.lock import Lock

    try:
        return Reserve(data.reserve).spend(lambda: Lock(data.database))
    except StoreUnusable as error:
        click.echo(f"warning: {error}; stopping guests without the lock", err=True)
        return None


def show(data: DataDir) -> None:
    """Print whether the server runs."""
    pid = running_pid(data)
    if pid is None:
        click.echo(f"not running on {data.root}")
        raise click.exceptions.Exit(1)
    click.echo(f"running: {_url(data)}, process {pid}, kubeconfig {data.kubeconfig}")


def running_pid(data: DataDir) -> int | None:
    """Return the process id of the server on a data directory, if it is alive."""
    try:
        pid = int(data.pid.read_text())
    except (OSError, ValueError):
        return None
    return pid if _serves(pid, data.root) else None


def find(url: str) -> DataDir | None:
    """Return the data directory of the server that this machine runs at a URL."""
    from livevirt.kube.client.errors import ConfigError

    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            served = served_directory(file.read_bytes())
            if served is not None and _url(DataDir(served)) == url:
                return DataDir(served)
        except (OSError, ConfigError):
            continue  # it has ended, or is another user's
    return None


def _serves(pid: int, root: Path) -> bool:
    """Return whether a process is the server of a data directory.

    The file with its id outlives a server that was killed, and its id may be another's by then.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    served = served_directory(command)
    return (
        state != "Z" and served is not None and os.path.realpath(served) == os.path.realpath(root)
    )


def served_directory(command: bytes) -> Path | None:
    """Return the data directory of a server's command line, None if it is no server's."""
    *program, settings = command.removesuffix(b"\0").split(b"\0")
    if _MODULE.encode() not in program:
        return None
    try:
        return Path(msgspec.json.decode(settings, type=Settings).data_dir)
    except ValueError:
        return None


def _url(data: DataDir) -> str:
    from livevirt.kube.client import kubeconfig  # imports what stopping a server does not need

    return kubeconfig.find(str(data.kubeconfig)).server
