"""The whole control plane killed while guests are created, started, stopped and deleted.

Four VMs take turns, so that every kill finds each of the four under way, at a moment the dice
choose. A fifth guest looks on, and must not notice.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from livevirt.node import cgroups, process

from ..guest.guest_host import (
    IMAGE,
    GuestHost,
    Object,
    a_bare_vm,
    a_vm,
    image_missing,
    running_host,
    until,
)
from ..guest.many_disks import data_volume

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

BYSTANDER = "bystander"
OPERATIONS = ("create", "stop", "start", "delete")  # in the order one VM goes through them
CONVERGE_SECONDS = 90.0  # far more than it takes
LATEST = 2.0  # seconds after the operations began
VMS = "apis/kubevirt.io/v1/namespaces/default/virtualmachines"


class Player:
    """One VM with a disk that outlives its guests, and what it should be by now."""

    def __init__(self, host: GuestHost, name: str) -> None:
        self.host, self.name = host, name
        self.wanted = "absent"

    @property
    def manifest(self) -> Object:
        vm = a_bare_vm(self.name)
        disk = data_volume(f"{self.name}-disk", {"blank": {}}, "1Mi")
        vm["spec"]["dataVolumeTemplates"] = [
            {"metadata": disk["metadata"], "spec": disk["spec"]},
        ]
        vm["spec"]["template"]["spec"]["volumes"] = [
            {"name": "root", "dataVolume": {"name": f"{self.name}-disk"}},
        ]
        return vm

    def ask(self, operation: str) -> None:
        """Ask for it, perhaps in vain; asking again for what was done changes nothing."""
        match operation:
            case "create":
                self.wanted = "running"
                self._send("POST", VMS, self.manifest)
            case "start" | "stop":
                self.wanted = "running" if operation == "start" else "stopped"
                strategy = "Always" if operation == "start" else "Halted"
                patch = {"spec": {"runStrategy": strategy}}
                self._send("PATCH", f"{VMS}/{self.name}", patch)
            case "delete":
                self.wanted = "absent"
                self._send("DELETE", f"{VMS}/{self.name}", None)

    def _send(self, method: str, path: str, body: Object | None) -> None:
        kind = "merge-patch+json" if method == "PATCH" else "json"
        request = urllib.request.Request(
            f"{self.host.server.url}/{path}", method=method,
            data=json.dumps(body).encode() if body else None,
            headers={"Content-Type": f"application/{kind}"},
        )  # fmt: skip
        done = {"POST": 409, "DELETE": 404}.get(method)
        try:
            with urllib.request.urlopen(request, context=self.host.context, timeout=60) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            with error:
                if error.code != done:
                    raise AssertionError(error.read()) from error

    def settled(self) -> bool:
        """Tell whether everything is as was asked for last."""
        qemus, pods = len(self.host.qemus(self.name)), self.host.pods(self.name)
        vm = self.host.get("vm", self.name)
        match self.wanted:
            case "running":
                running = vm and self.host.phase(self.name) == "Running" and len(pods) == 1
                return bool(running and self.host.word(self.name) == "Running" and qemus == 1)
            case "stopped":
                stopped = vm and self.host.word(self.name) == "Stopped"
                return bool(stopped and not pods and not qemus and not self.host.uid(self.name))
            case _:
                left = (vm, self.host.uid(self.name), self.host.get("pvc", f"{self.name}-disk"))
                return not (any(left) or pods or qemus)


class Watchman(threading.Thread):
    """Looks at every process all the time, for two with one disk."""

    def __init__(self, data: Path) -> None:
        super().__init__(daemon=True)
        self._data = os.fsencode(data)
        self._over = threading.Event()
        self.rounds = 0
        self.shared: list[tuple[bytes, list[int]]] = []

    def run(self) -> None:
        while not self._over.wait(0.02):
            users = collections.defaultdict(list)
            for pid in process.all_pids():
                for disk in self._disks(pid):
                    users[disk].append(pid)
            self.shared += [(disk, pids) for disk, pids in users.items() if len(pids) > 1]
            self.rounds += 1

    def _disks(self, pid: int) -> set[bytes]:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[0].startswith(b"qemu-system"):
                text = b"\0".join(words)
                return {
                    part.partition(b'"')[0]
                    for part in text.split(b'"filename":"')[1:]
                    if part.startswith(self._data)
                }
        return set()

    def end(self) -> None:
        self._over.set()
        self.join()


@pytest.fixture
def host() -> Iterator[GuestHost]:
    with running_host() as host:
        yield host


@contextlib.contextmanager
def watched(host: GuestHost) -> Iterator[None]:
    """Expect that no two QEMUs ever have one disk."""
    watchman = Watchman(host.server.data)
    watchman.start()
    try:
        yield
    finally:
        watchman.end()
    assert watchman.rounds > 0
    assert watchman.shared == []


def converges(players: list[Player]) -> None:
    for player in players:
        try:
            until(f"{player.name} to be {player.wanted}", player.settled, CONVERGE_SECONDS)
        except AssertionError as error:
            server = player.host.server
            shown = server.run_kubectl("get", "vm,vmi,dv,pvc,pod,events").stdout
            log = server.log.read_text()[-5000:]
            raise AssertionError(f"{error}\n{shown}\n{log}") from None


def pod_directories(host: GuestHost) -> set[str]:
    return {path.name for path in host.server.data.glob("nodes/*/pods/*")}


def cgroup_directories(pods: set[str]) -> set[str]:
    """Return those of these pods that have a cgroup of any kind."""
    own, found = Path("/proc/self/cgroup").read_text(), set()
    for each in cgroups.hierarchies(Path("/proc/self/mountinfo").read_text(), own):
        for path in Path(each.mount, each.own, "livevirt").glob("*/pod*"):
            found.add(path.name.removeprefix("pod"))
    return found & pods


def nothing_is_left_over(host: GuestHost, seen: set[str]) -> None:
    """Expect files, sockets and cgroups of the objects there are, and of no others.

    The objects are read anew each time: a volume of a claim that was deleted goes a little later.
    """
    data = host.server.data

    def leftovers() -> list[str]:
        pods = {pod["metadata"]["uid"] for pod in host.get("pod")["items"]}
        listed = host.read("api/v1/persistentvolumes")["items"]
        volumes = {each["metadata"]["name"] for each in listed}
        directories = {path.name for path in data.glob("volumes/*")}
        sockets = len(list((data / "run").iterdir()))
        return [
            *(f"pod {uid}" for uid in pod_directories(host) ^ pods),
            *(f"cgroup {uid}" for uid in cgroup_directories(seen | pods) - pods),
            *(f"volume {name}" for name in directories ^ volumes),
            *([] if sockets == len(pods) else [f"{sockets} sockets of {len(pods)} pods"]),
            *([] if len(host.qemus()) == len(pods) else [f"QEMUs {host.qemus()} of {pods}"]),
        ]

    try:
        until("leftovers to go", lambda: not leftovers(), 60)
    except AssertionError as error:
        raise AssertionError(f"{error}: {leftovers()}") from None
    files = {path.name for path in (data / "volumes").glob("*/*")}
    assert files <= {"disk.img"}


def asked_until_killed(
    host: GuestHost, players: list[Player], round_: int, dice: random.Random
) -> None:
    """Ask each VM for its next operation, at a moment of its own, and kill the server meanwhile."""
    moments = [dice.uniform(0, LATEST) for _ in players]
    ready = threading.Barrier(len(players) + 1)

    def ask(player: Player, operation: str, moment: float) -> None:
        ready.wait()
        time.sleep(moment / 2)  # the moment is what is tested
        with contextlib.suppress(OSError):  # it died on us
            player.ask(operation)

    threads = [
        threading.Thread(target=ask, args=(player, operation_of(number, round_), moments[number]))
        for number, player in enumerate(players)
    ]
    for thread in threads:
        thread.start()
    ready.wait()
    time.sleep(dice.uniform(0, LATEST))
    host.server.kill()
    for thread in threads:
        thread.join()


def operation_of(number: int, round_: int) -> str:
    return OPERATIONS[(number + round_) % len(OPERATIONS)]


def boot_of(host: GuestHost) -> tuple[str, int, object]:
    """Return what tells one boot of the bystander, and one QEMU, from another."""
    host.found(BYSTANDER)
    pid = host.qemu(BYSTANDER)
    return host.boot_id(BYSTANDER), pid, process.seen(pid)


@pytest.mark.parametrize(
    "kills", [pytest.param(3, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.soak)]
)
def test_given_kills_at_random_moments_then_everything_converges_and_nothing_is_left(
    host: GuestHost, kills: int
) -> None:
    dice = random.Random(kills)
    players = [Player(host, f"vm{number}") for number in range(len(OPERATIONS))]
    host.apply(a_vm(BYSTANDER, memory="128Mi"))
    host.answers(BYSTANDER)
    before, began = boot_of(host), time.monotonic()
    for number, player in enumerate(players):  # what the first round finds
        for operation in OPERATIONS[: OPERATIONS.index(operation_of(number, 0))]:
            player.ask(operation)
            converges([player])
    seen: set[str] = set()
    with watched(host):
        for round_ in range(kills):
            asked_until_killed(host, players, round_, dice)
            seen |= pod_directories(host)
            assert before[1] in host.qemus(BYSTANDER)
            host.server.start()
            for number, player in enumerate(players):
                player.ask(operation_of(number, round_))
            converges(players)
            nothing_is_left_over(host, seen)
    assert boot_of(host) == before
    assert float(host.shell(BYSTANDER, "cut -d' ' -f1 /proc/uptime")) > time.monotonic() - began
    for player in players:
        player.ask("delete")
    converges(players)
    host.delete(BYSTANDER)
    nothing_is_left_over(host, seen)
