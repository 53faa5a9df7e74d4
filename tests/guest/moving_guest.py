"""A guest that is moved between the logical nodes of one machine, and asked what it noticed."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from ..server_process import BIN, ServerProcess, short_directory
from .guest_host import GuestHost, Object, a_vm, until

NODES = ("node01", "node02")
MOVE_SECONDS = 60.0  # far more than it takes
PAUSE_SECONDS = 1.0  # that a guest may stand still in a move
FINAL = ("Succeeded", "Failed")
# An emulated guest's own clock stops with it, so what it prints is timed outside.
_COUNTER = """
cat > /run/counter <<'EOF'
i=0
while :; do i=$((i+1)); echo "tick $i" > /dev/ttyS0; usleep 20000; done
EOF
setsid sh /run/counter < /dev/null > /dev/null 2>&1 &
"""
_TICK = re.compile(rb"tick (\d+)\r?\n")
_LOOK_SECONDS = 0.005
_BEFORE = 25  # numbers, before anything is done to the guest


class Ticks:
    """What a guest counts on its serial port, wherever it is, and when each number was seen."""

    def __init__(self, host: GuestHost) -> None:
        self._folder = host.server.data / "nodes"
        self._read: dict[Path, int] = {}
        self._seen: list[tuple[float, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ticks")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            now = time.monotonic()
            for file in self._folder.glob("*/pods/*/serial.log"):
                with contextlib.suppress(FileNotFoundError):
                    self._take(file, now)

    def _take(self, file: Path, now: float) -> None:
        begin = self._read.setdefault(file, file.stat().st_size if not self._seen else 0)
        with file.open("rb") as log:
            log.seek(begin)
            found = log.read()
        whole = found.rfind(b"\n") + 1
        self._read[file] = begin + whole
        self._seen += [(now, int(number)) for number in _TICK.findall(found[:whole])]

    @property
    def last(self) -> int:
        return self._seen[-1][1] if self._seen else 0

    def counts_on(self) -> None:
        """Return once it has counted a good deal further."""
        goal = self.last + _BEFORE
        until(f"a count of {goal}", lambda: self.last >= goal, MOVE_SECONDS)

    def never_went_back(self) -> None:
        numbers = [number for _, number in self._seen]
        assert numbers == sorted(set(numbers))

    def paused_at_most(self, seconds: float) -> None:
        """Expect no longer pause than that, but for what a busy machine takes from any guest.

        How much that is shows before the first move.
        """
        times = [when for when, _ in self._seen]
        pauses = [later - earlier for earlier, later in pairwise(times)]
        before = max(pauses[:_BEFORE])
        assert max(pauses) <= seconds + before, f"{max(pauses):.2f} s, {before:.2f} s before"


@contextlib.contextmanager
def two_nodes(*flags: str) -> Iterator[GuestHost]:
    """Run a server with two logical nodes for as long as the block lasts."""
    with short_directory() as home:
        home.chmod(0o711)  # QEMU, which has a user of its own, must get through
        host = GuestHost(ServerProcess(home, flags=("--nodes", "2", *flags)))
        try:
            host.server.start()
            yield host
        finally:
            host.end()


@contextlib.contextmanager
def sent_slowly(host: GuestHost, bandwidth: str = "1Mi") -> Iterator[None]:
    """Have guests sent so slowly that it would take minutes."""
    kubevirt = ("patch", "kubevirt", "kubevirt", "-n", "kubevirt", "--type", "merge", "-p")

    def settings(migrations: Object | None) -> str:
        return json.dumps({"spec": {"configuration": {"migrations": migrations}}})

    host.server.kubectl(*kubevirt, settings({"bandwidthPerMigration": bandwidth}))
    try:
        yield
    finally:
        host.server.kubectl(*kubevirt, settings(None))


@contextlib.contextmanager
def phases_seen(host: GuestHost, kind: str) -> Iterator[Callable[[str], list[tuple[int, str]]]]:
    """Record all objects of a kind; the function tells the versions of one, and their phases."""
    line = '{.metadata.name} {.metadata.resourceVersion} {.status.phase}.{"\\n"}'
    file = host.server.home / f"{kind}.watch"
    with file.open("wb") as out:
        watching = subprocess.Popen(
            [BIN / "kubectl", "get", kind, "--watch", "-o", f"jsonpath={line}"],
            env=host.server.environment(), cwd=host.server.home, stdout=out,
        )  # fmt: skip

    def seen(name: str) -> list[tuple[int, str]]:
        whole = file.read_text().rpartition("\n")[0]
        lines = [line.split(" ") for line in whole.splitlines()]
        return [
            (int(version), phase.rstrip(".")) for named, version, phase in lines if named == name
        ]

    try:
        yield seen
    finally:
        watching.terminate()
        watching.wait()


def a_movable_vm(name: str, **domain: Any) -> Object:
    """Return a VM that may be moved and whose CPUs and memory may grow."""
    vm = a_vm(name)
    made = vm["spec"]["template"]["spec"]["domain"]
    made["cpu"] = {"sockets": 1, "maxSockets": 4}
    made["memory"] = {"guest": "256Mi", "maxGuest": "1Gi"}
    made |= domain
    return vm


class MovingGuest:
    """One VM on a host with two nodes."""

    def __init__(self, host: GuestHost, vm: Object) -> None:
        self.host, self.vm = host, vm
        self.name: str = vm["metadata"]["name"]
        self.born = ""  # what its kernel calls its boot

    def boot(self) -> None:
        """Start it, and a program in it that counts."""
        self.host.apply(self.vm)
        self.host.answers(self.name)
        self.born = self.host.boot_id(self.name)
        self.host.shell(self.name, _COUNTER)

    @property
    def node(self) -> str:
        return str((self.host.get("vmi", self.name).get("status") or {}).get("nodeName", ""))

    @property
    def other(self) -> str:
        return next(node for node in NODES if node != self.node)

    @property
    def state(self) -> Object:
        found: Object = self.host.get("vmi", self.name)["status"].get("migrationState") or {}
        return found

    # ------------------------------------------------------------ migrations

    def migrations(self) -> list[Object]:
        """Return those of this guest, the newest last."""
        path = "apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"
        found = [
            each for each in self.host.read(path)["items"] if each["spec"]["vmiName"] == self.name
        ]
        return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))

    def migration(self, name: str) -> Object:
        path = f"apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations/{name}"
        return self.host.read(path)

    def phase(self, name: str) -> str:
        return str((self.migration(name).get("status") or {}).get("phase", ""))

    def ask(self, name: str) -> None:
        """Ask for a migration of that name, and do not wait for it."""
        self.host.apply(
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstanceMigration",
                "metadata": {"name": name},
                "spec": {"vmiName": self.name},
            }
        )

    def ends(self, name: str) -> Object:
        """Return a migration once it has ended."""
        until(f"{name} to end", lambda: self.phase(name) in FINAL, MOVE_SECONDS)
        return self.migration(name)

    def attempt(self, name: str) -> Object:
        """Ask for a migration, and return it once it has ended."""
        self.ask(name)
        return self.ends(name)

    def move(self, name: str) -> Object:
        """Move it to the other node, and expect it to be there."""
        before = self.node
        ended = self.attempt(name)
        assert ended["status"]["phase"] == "Succeeded", ended["status"]
        assert self.node != before
        self.is_alone()
        return ended

    # ------------------------------------------------------------ what is true of it

    def sees(self, *serials: str) -> None:
        """Expect the guest to see just the scsi disks of these serials."""
        listed = "cd /dev/disk/by-id 2>/dev/null && ls -d scsi-* 2>/dev/null || true"

        def found() -> set[str]:
            names = self.host.shell(self.name, listed).split()
            return {each.rpartition("_")[2] for each in names}

        until(f"the guest to see {serials}", lambda: found() == set(serials), MOVE_SECONDS)

    def is_alone(self) -> None:
        """Expect just one QEMU and one pod that has not ended, on the node the instance names."""

        def running() -> list[Object]:
            found = self.host.pods(self.name)
            return [pod for pod in found if pod["status"].get("phase") not in FINAL]

        until(
            "one QEMU and one pod",
            lambda: len(self.host.qemus(self.name)) == len(running()) == 1,
            MOVE_SECONDS,
        )
        (pod,) = running()
        assert pod["spec"]["nodeName"] == self.node

    def went_on(self) -> None:
        """Expect the guest not to have been rebooted."""
        self.host.found(self.name)
        assert self.host.boot_id(self.name) == self.born
