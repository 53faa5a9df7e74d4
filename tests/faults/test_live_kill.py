"""The whole control plane killed between the steps of a live change of CPUs and memory.

One guest lives through all of it. A round without a kill writes down the steps a change takes:
commands to QEMU, calls of the guest agent, writes to the store. Then the change is made again and
again, each time by a server that kills itself at another of those steps (`fail_point.py`). The
next server must find the guest and finish, before it is made to change it again and to die as
well. What came of it is asked of the API and of the guest while a server is there, and of QEMU
itself when it is gone.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import itertools
import json
import random
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from livevirt.node import process
from livevirt.qemu.observe import PERIPHERALS
from livevirt.qemu.session import Session
from livevirt.vm.sizing import reservation

from ..guest.guest_host import IMAGE, GuestHost, Object, a_vm, image_missing, running_host, until
from .test_control_plane_kill import cgroup_directories, nothing_is_left_over, pod_directories

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

FAIL_POINT = str(Path(__file__).with_name("fail_point.py"))
GONE = (OSError, http.client.HTTPException)  # what a client meets whose server dies
NAME = "live"
VM = f"apis/kubevirt.io/v1/namespaces/default/virtualmachines/{NAME}"
EXEC = f"apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/{NAME}/exec"
CONVERGE_SECONDS = 60.0  # far more than it takes
MIB = 1 << 20
MOST_SOCKETS = 16
CHANGES = ("HotVCPUChange", "HotMemoryChange")
RESIZES = ("PodResizePending", "PodResizeInProgress")

# What goes on beside a change, as all that the agent is asked does but for its CPUs.
BESIDE = ("write leases", "write nodes")
# What changes nothing: to die around it is to die before the next step.
READS = ("qmp query-", "qmp x-query-", "qmp qom-list", "qmp qom-get", "agent guest-get-")
# Where a CPU is really plugged. An emulated one stays when its guest gives it back, so a socket
# can be had for one such round only.
PLUGS = ("qmp device_add",)

LOOK = """
nproc
awk '/^MemTotal/ {print $2}' /proc/meminfo
cut -d. -f1 /proc/uptime
cat /proc/sys/kernel/random/boot_id
"""


@dataclass(frozen=True, slots=True)
class Size:
    """What the guest should have."""

    sockets: int
    mebibytes: int


SMALL, LARGE = Size(1, 256), Size(3, 512)


@dataclass(frozen=True, slots=True)
class Told:
    """What the guest says of itself."""

    sockets: int
    kibibytes: int
    uptime: int
    boot: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What QEMU says: every device with an id, the CPUs that are there, the memory plugged."""

    kvm: bool
    devices: list[str]
    cpus: list[str]
    memory: list[Object]


async def asked_of_qemu(host: GuestHost) -> Answer:
    """Ask QEMU itself, which no server talks to now: it answers one at a time."""
    (path,) = host.server.data.glob("run/*/qmp.sock")
    async with asyncio.timeout(10), await Session.connect(str(path)) as qmp:
        devices = await qmp.execute("qom-list", {"path": PERIPHERALS})
        slots = await qmp.execute("query-hotpluggable-cpus")
        memory = [each["data"] for each in await qmp.execute("query-memory-devices")]
        paths = [slot["qom-path"] for slot in slots if "qom-path" in slot]
        assert len(paths) == len(await qmp.execute("query-cpus-fast"))
        return Answer(
            (await qmp.execute("query-kvm"))["enabled"],
            sorted(each["name"] for each in devices if each["type"].startswith("child<")),
            paths[::-1],  # QEMU lists the last socket first
            [{name: each[name] for name in ("size", "requested-size")} for each in memory],
        )


class Changing:
    """The guest that is changed, and what is known of it."""

    def __init__(self, host: GuestHost) -> None:
        self.host = host
        self.trace = host.server.home / "trace"
        self.size = SMALL
        self.plugged = SMALL.sockets  # at most so far
        self.missed: list[str] = []  # points that the change did not come to this time
        vm = a_vm(NAME)
        domain = vm["spec"]["template"]["spec"]["domain"]
        domain["cpu"] = {"sockets": SMALL.sockets, "maxSockets": MOST_SOCKETS}
        domain["memory"] = {"guest": f"{SMALL.mebibytes}Mi", "maxGuest": "1Gi"}
        host.apply(vm)
        host.answers(NAME)
        self.converges()
        self.first = self.told()
        self.born = time.monotonic() - self.first.uptime
        pid = host.qemu(NAME)
        self.process = pid, process.seen(pid)
        self.pod = self._pod()["metadata"]["uid"]
        self.vmi = host.uid(NAME)
        host.server.kill()
        self.devices = self._asked().devices

    # ------------------------------------------------------------ a round

    def change(self, size: Size, point: str = "") -> list[str]:
        """Change the size, under a server that dies at that point if there is one.

        It first completes what an earlier one has left. Returns its steps; afterwards there is no
        server.
        """
        self.trace.unlink(missing_ok=True)
        self._start(sys.executable, FAIL_POINT, str(self.trace), point)
        before, self.size = self.size, size
        self.trace.touch()
        with contextlib.suppress(*(GONE if point else ())):
            self._edit()
        self._wait(f"{size}, or to die {point}", self._dead_or_settled)
        steps = self.trace.read_text().splitlines()
        if point and self.host.server.alive():
            self.missed.append(point)
        self.host.server.kill()
        self._qemu_agrees(before)
        return steps

    def finish(self) -> None:
        """Complete the last change and expect QEMU to have just that; afterwards a server runs."""
        self._start()
        self.host.server.kill()
        self._qemu_agrees(self.size)
        self.host.server.start()

    def _start(self, *program: str) -> None:
        """Start a server and expect it to complete the change that was asked for last."""
        self.host.server.start(*program)
        if not self._edited():
            self._edit()  # as whoever got no answer does
        self.converges()
        self.is_right()
        self.plugged = max(self.plugged, self.size.sockets)

    def _dead_or_settled(self) -> bool:
        if not self.host.server.alive():
            return True
        with contextlib.suppress(*GONE):
            return self.settled()
        return False

    def _edit(self) -> None:
        cpu, memory = {"sockets": self.size.sockets}, {"guest": f"{self.size.mebibytes}Mi"}
        domain = {"cpu": cpu, "memory": memory}
        self._send("PATCH", VM, {"spec": {"template": {"spec": {"domain": domain}}}})

    def _edited(self) -> bool:
        return self._size_in(self.host.read(VM)["spec"]["template"]["spec"]["domain"])

    def _size_in(self, domain: Object) -> bool:
        found = domain["cpu"]["sockets"], domain["memory"]["guest"]
        return found == (self.size.sockets, f"{self.size.mebibytes}Mi")

    def _send(self, method: str, path: str, body: Object) -> Object:
        kind = "merge-patch+json" if method == "PATCH" else "json"
        request = urllib.request.Request(
            f"{self.host.server.url}/{path}", method=method, data=json.dumps(body).encode(),
            headers={"Content-Type": f"application/{kind}"},
        )  # fmt: skip
        with urllib.request.urlopen(request, context=self.host.context, timeout=60) as answer:
            found: Object = json.load(answer)
        return found

    # ------------------------------------------------------------ what came of it

    def converges(self) -> None:
        """Return once the API says that everything is as was asked for."""
        self._wait(f"{self.size}", self.settled)

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        try:
            until(what, holds, CONVERGE_SECONDS)
        except AssertionError as error:
            server = self.host.server
            shown = server.run_kubectl("get", "vm,vmi,pod", "-o", "yaml").stdout
            raise AssertionError(f"{error}\n{shown}\n{server.log.read_text()[-5000:]}") from None

    def settled(self) -> bool:
        """Tell whether the instance has its size, its pod just the room for it, and both say so."""
        vmi, pods = self.host.get("vmi", NAME), self.host.pods(NAME)
        status = vmi.get("status") or {}
        if len(pods) != 1 or "memory" not in status or not self._size_in(vmi["spec"]["domain"]):
            return False
        told = status["memory"]["guestCurrent"], status["memory"]["guestRequested"]
        (container,) = pods[0]["spec"]["containers"]
        in_force = [each["resources"] for each in pods[0]["status"]["containerStatuses"]]
        wanted = reservation.Size(self.size.sockets, self.size.mebibytes * MIB)
        return (
            self.host.word(NAME) == "Running"
            and status["currentCPUTopology"]["sockets"] == self.size.sockets
            and set(told) == {f"{self.size.mebibytes}Mi"}
            and not any(self.host.condition("vmi", NAME, each) for each in CHANGES)
            and not self.host.condition("vm", NAME, "RestartRequired")
            and not any(each["type"] in RESIZES for each in pods[0]["status"]["conditions"])
            and in_force == [container["resources"]]
            and container["resources"]["requests"] == reservation.held(vmi, wanted).requests
        )

    def is_right(self) -> None:
        """Expect the guest to agree with the API, and nothing to be left over."""
        began = time.monotonic()
        told = self.told()
        assert told.sockets == self.size.sockets
        assert told.kibibytes == self.first.kibibytes + _more(self.size) // 1024
        assert told.boot == self.first.boot
        assert told.uptime >= began - self.born - 2  # it never stood still
        assert self.host.uid(NAME) == self.vmi
        assert self._pod()["metadata"]["uid"] == self.pod
        nothing_is_left_over(self.host, {self.pod})
        assert pod_directories(self.host) == {self.pod}

    def _qemu_agrees(self, before: Size) -> None:
        """Expect QEMU to have what the guest had before, or is to have, or some CPUs of both."""
        pid = self.host.qemu(NAME)
        assert (pid, process.seen(pid)) == self.process
        answer = self._asked()
        # An emulated CPU stays when its guest gives it back.
        had = (before.sockets, self.size.sockets) if answer.kvm else (self.plugged,)
        assert min(had) <= len(answer.cpus) <= max(*had, self.size.sockets)
        ids = [f"cpu-{socket}-0-0" for socket in range(1, len(answer.cpus))]
        assert answer.devices == sorted({*self.devices, *ids})
        assert answer.cpus[1:] == [f"{PERIPHERALS}/{id}" for id in ids]
        (memory,) = answer.memory
        assert memory["requested-size"] in (_more(before), _more(self.size))
        if before == self.size:
            assert memory["size"] == memory["requested-size"]

    def _asked(self) -> Answer:
        return asyncio.run(asked_of_qemu(self.host))

    def _pod(self) -> Object:
        (pod,) = self.host.pods(NAME)
        return pod

    def told(self) -> Told:
        """Ask the guest what it has, as soon as it can be asked."""
        found: list[str] = []

        def answers() -> bool:
            with contextlib.suppress(urllib.error.HTTPError):
                found[:] = self._ran(LOOK)
            return bool(found)

        until("the guest to be found", answers)
        sockets, kibibytes, uptime, boot = found
        return Told(int(sockets), int(kibibytes), int(uptime), boot)

    def _ran(self, script: str) -> list[str]:
        """Run a script in the guest and return the words it printed."""
        done = self._send("POST", EXEC, {"command": ["sh", "-c", script]})
        return base64.b64decode(done["stdout"]).decode().split()


def _more(size: Size) -> int:
    """Return the bytes of memory a guest of that size has beyond those it booted with."""
    return (size.mebibytes - SMALL.mebibytes) * MIB


# ---------------------------------------------------------------- points


def points(steps: list[str]) -> list[str]:
    """Return where to kill so that no two steps that change something go without a kill between."""
    found = []
    for step in steps:
        name = step.partition(" ")[2]
        if name.startswith((*BESIDE, *READS)):
            continue
        if not name.startswith("agent") or name.endswith("vcpus"):
            found += [f"before {step}", f"after {step}"]
    return found


def plugs(point: str) -> bool:
    return point.endswith(PLUGS)


def certain(point: str) -> bool:
    """Tell whether every change comes to this point, however fast or slow the guest is."""
    _, number, name = point.split(" ", 2)
    return number == "1" and not name.startswith((*READS, "write events"))


def sampled(found: list[str], count: int, dice: random.Random) -> list[str]:
    return dice.sample([point for point in found if certain(point)], count)


@pytest.fixture
def guest() -> Iterator[Changing]:
    with running_host() as host:
        yield Changing(host)


@pytest.mark.parametrize(
    "full",
    [
        pytest.param(False, id="at-a-few-points", marks=pytest.mark.slow),
        pytest.param(True, id="at-every-point", marks=pytest.mark.soak),
    ],
)
def test_given_kills_between_the_steps_of_live_changes_then_each_is_finished_once(
    guest: Changing, full: bool
) -> None:
    plug = [each for each in points(guest.change(LARGE)) if plugs(each)]
    shrink = points(guest.change(SMALL))
    grow = points(guest.change(LARGE))
    guest.change(SMALL)
    if not full:
        dice = random.Random(4)
        plug, grow, shrink = (
            sampled(found, count, dice) for found, count in ((plug, 1), (grow, 2), (shrink, 3))
        )
    print(f"{len(plug)} points of a plug, {len(grow)} of growing, {len(shrink)} of shrinking")
    for up, down in itertools.zip_longest([*plug, *grow], shrink, fillvalue=""):
        # A socket that was never there, for what only happens then.
        guest.change(Size(guest.plugged + 2, LARGE.mebibytes) if plugs(up) else LARGE, up)
        guest.change(SMALL, down)
    # A guest may be so fast that its agent need not tell it to use a new CPU.
    print(f"not come to: {guest.missed}")
    assert not [each for each in guest.missed if certain(each) and " agent " not in each]
    guest.finish()
    guest.host.delete(NAME)
    nothing_is_left_over(guest.host, {guest.pod})
    assert not cgroup_directories({guest.pod})
