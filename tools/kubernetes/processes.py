"""Start, stop and watch the processes of a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from host import ClusterError, interrupts_deferred, wait_until
from record import Cluster

TAIL_LINES = 25


@dataclass(frozen=True)
class Process:
    """A process of a cluster, as recorded in a file so that later commands can stop it."""

    name: str
    argv: list[str]
    environment: dict[str, str]
    log: Path
    pid: int = 0
    started: int = 0  # start time in clock ticks, unlike that of a later process of the same pid

    @property
    def alive(self) -> bool:
        return self.pid != 0 and start_time(self.pid) == self.started

    @property
    def tail(self) -> str:
        """Return the last lines of the log."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(lines[-TAIL_LINES:]) or "(empty log)"


class ComponentFailed(ClusterError):
    """A component ended or did not become ready."""

    def __init__(self, process: Process, problem: str) -> None:
        super().__init__(f"{process.name} {problem}; the end of {process.log}:\n{process.tail}")


def start(
    cluster: Cluster,
    name: str,
    argv: Iterable[str | Path],
    environment: Mapping[str, str] | None = None,
    inherit: int | None = None,
) -> Process:
    """Start a process in the background; it inherits the file descriptor given."""
    process = Process(
        name=name,
        argv=[str(word) for word in argv],
        environment=dict(os.environ if environment is None else environment),
        log=cluster.logs / f"{name}.log",
    )
    return _spawn(cluster, process, inherit)


def restart(cluster: Cluster, process: Process) -> Process:
    """Start a stopped process again with the same arguments."""
    if process.alive:
        raise ClusterError(f"{process.name} is running already")
    return _spawn(cluster, process, None)


def stop(process: Process, kind: signal.Signals = signal.SIGTERM, seconds: float = 20) -> None:
    """Stop a process and wait for its end.

    A node's component is entered by nsenter, which waits for it in the same process group.
    """
    if not process.alive:
        return
    _signal_group(process, signal.SIGCONT)
    _signal_group(process, kind)
    if not wait_until(lambda: not process.alive, seconds):
        _signal_group(process, signal.SIGKILL)
        wait_until(lambda: not process.alive, 5)


def kill(process: Process) -> None:
    """Kill a process without waiting for its end."""
    if process.alive:
        _signal_group(process, signal.SIGKILL)


def send(process: Process, kind: signal.Signals) -> None:
    """Send a signal to a process."""
    if not process.alive:
        raise ClusterError(f"{process.name} is not running")
    _signal_group(process, kind)


def recorded(cluster: Cluster) -> Iterator[Process]:
    """Yield the processes of a cluster in the order in which they were first started."""
    files = (cluster.run_directory / "processes").glob("*.json")
    processes = [json.loads(file.read_text()) for file in files]
    for fields in sorted(processes, key=lambda fields: int(fields["order"])):
        del fields["order"]
        yield Process(**fields | {"log": Path(fields["log"])})


def find(cluster: Cluster, name: str) -> Process:
    """Return a process of a cluster by name."""
    for process in recorded(cluster):
        if process.name == name:
            return process
    names = ", ".join(process.name for process in recorded(cluster))
    raise ClusterError(f"no component {name} in {cluster.name}; there are {names}")


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it has ended."""
    fields = stat_fields(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on, or None if there is no process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and its children in the same process group."""
    total = 0
    for other in process_ids():
        fields = stat_fields(other)
        if fields is not None and int(fields[2]) == pid:
            total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return total


def process_ids() -> list[int]:
    """Return the ids of all processes."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _spawn(cluster: Cluster, process: Process, inherit: int | None) -> Process:
    with interrupts_deferred():  # a process that runs is also recorded
        process.log.parent.mkdir(parents=True, exist_ok=True)
        with process.log.open("ab") as log:
            child = subprocess.Popen(
                process.argv,
                env=process.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                pass_fds=() if inherit is None else (inherit,),
            )
        child.returncode = 0  # it outlives us: keep Popen from warning about that
        fields = asdict(process) | {"pid": child.pid, "started": start_time(child.pid) or 0}
        spawned = Process(**fields)
        file = cluster.run_directory / "processes" / f"{process.name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        order = json.loads(file.read_text())["order"] if file.exists() else time.monotonic_ns()
        unfinished = file.with_suffix(".part")
        unfinished.write_text(json.dumps(fields | {"log": str(process.log), "order": order}))
        unfinished.rename(file)  # nodes start in parallel, so others read meanwhile
    return spawned


def _signal_group(process: Process, kind: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, kind)
