"""A guest whose size is changed while it runs, looked at from every side after each change."""

from __future__ import annotations

import copy
import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from livevirt.kube.objects.quantity import parse
from livevirt.node import cgroups, process

from .guest_host import SECONDS, GuestHost, Object, a_vm, until

CPU, MEMORY = "HotVCPUChange", "HotMemoryChange"
MOST_SOCKETS, MOST_MEMORY = 4, "1Gi"
MIGRATIONS = "apis/kubevirt.io/v1/virtualmachineinstancemigrations"
CHANGE_SECONDS = 60.0  # far more than a change takes
MIB = 1 << 20

#: KubeVirt's formulas: a vCPU asks for a tenth of a CPU, QEMU for 8Mi more with each, and for page
#: tables, one byte of every 512.
MILLI_PER_VCPU, BYTES_PER_VCPU, PAGE_TABLES = 100, 8 * MIB, 512

_LOOK = (
    "nproc; grep MemTotal: /proc/meminfo; cat /proc/sys/kernel/random/boot_id;"
    " cut -d' ' -f1 /proc/uptime"
)


def a_live_vm(name: str, **spec: Any) -> Object:
    """Return a VM of one socket and 512Mi that can grow."""
    vm = a_vm(name, **spec)
    domain = vm["spec"]["template"]["spec"]["domain"]
    domain["cpu"] = {"sockets": 1, "maxSockets": MOST_SOCKETS}
    domain["memory"] = {"guest": "512Mi", "maxGuest": MOST_MEMORY}
    return vm


def sized(manifest: Object, sockets: int, memory: str) -> Object:
    """Return a manifest in which the guest has another size."""
    changed = copy.deepcopy(manifest)
    domain = changed["spec"]["template"]["spec"]["domain"]
    domain["cpu"]["sockets"], domain["memory"]["guest"] = sockets, memory
    return changed


@dataclass(frozen=True, slots=True)
class Look:
    """What a guest says of itself, and between which moments of ours it did."""

    cpus: int
    memory: int  # bytes, less what its kernel keeps for itself
    boot: str
    uptime: float
    asked: float
    answered: float


@dataclass(frozen=True, slots=True)
class Born:
    """What a guest was when its agent answered first."""

    look: Look
    qemu: tuple[int, object]
    sockets: int
    memory: int
    requested: int  # bytes of memory that the pod asked for


class LiveGuest:
    """One VM, edited through its manifest as a person does."""

    def __init__(self, host: GuestHost, manifest: Object) -> None:
        self.host, self.manifest = host, manifest
        self.name: str = manifest["metadata"]["name"]
        self.born: Born

    # ------------------------------------------------------------ asking

    def begin(self) -> None:
        """Take note of a guest that has just booted."""
        self.host.answers(self.name)
        until("it settles", self.is_settled, CHANGE_SECONDS)
        sockets, memory = self.asked
        requests = self.resources["requests"]
        self.born = Born(
            self.look(), self.qemu(), sockets, parse(memory).bytes, parse(requests["memory"]).bytes
        )

    @property
    def asked(self) -> tuple[int, str]:
        """The size that the manifest asks for."""
        domain = self.manifest["spec"]["template"]["spec"]["domain"]
        return domain["cpu"]["sockets"], domain["memory"]["guest"]

    def ask(self, sockets: int, memory: str) -> None:
        """Ask for a size with kubectl, and return while it is under way."""
        self.manifest = sized(self.manifest, sockets, memory)
        self.host.apply(self.manifest)

    def becomes(self, sockets: int, memory: str) -> None:
        """Ask for a size and expect it everywhere."""
        self.ask(sockets, memory)
        self.has_what_it_asked_for()

    # ------------------------------------------------------------ the API's view

    @property
    def pod(self) -> Object:
        (pod,) = self.host.pods(self.name)
        return pod

    @property
    def resources(self) -> Object:
        """What the pod asks for now."""
        found: Object = self.pod["spec"]["containers"][0]["resources"]
        return found

    def reasons(self, kind: str = "vmi") -> dict[str, str]:
        """Return why each change that is under way is not done yet."""
        listed = (self.host.get(kind, self.name).get("status") or {}).get("conditions") or []
        return {c["type"]: c["reason"] for c in listed if c["type"] in (CPU, MEMORY)}

    def message(self, type_: str, kind: str = "vmi") -> str:
        return str(self.host.condition(kind, self.name, type_).get("message", ""))

    def waits(self, reason: str, seconds: float = CHANGE_SECONDS) -> None:
        """Expect both changes to stand there, and VM and instance to say so."""
        wanted = {CPU: reason, MEMORY: reason}

        def told() -> list[dict[str, str]]:
            return [self.reasons("vmi"), self.reasons("vm")]

        try:
            until(reason, lambda: told() == [wanted, wanted], seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {told()}") from None

    def is_settled(self) -> bool:
        """Tell whether instance and VM say that the guest has the size asked for."""
        sockets, memory = self.asked
        vmi = self.host.get("vmi", self.name)
        domain, status = vmi["spec"]["domain"], vmi["status"]
        told = status.get("memory") or {}
        amounts = (domain["memory"]["guest"], told.get("guestCurrent"), told.get("guestRequested"))
        counts = (domain["cpu"]["sockets"], (status.get("currentCPUTopology") or {}).get("sockets"))
        return bool(
            all(one and parse(one) == parse(memory) for one in amounts)
            and set(counts) == {sockets}
            and self.reasons("vmi") == self.reasons("vm") == {}
        )

    def is_given(self) -> bool:
        """Tell whether the guest was offered the size asked for: what it takes, others see to.

        The instance asks for it, its pod has the room and QEMU was told about memory.
        """
        sockets, memory = self.asked
        vmi, pod = self.host.get("vmi", self.name), self.pod
        domain, told = vmi["spec"]["domain"], vmi["status"].get("memory") or {}
        (container,) = pod["spec"]["containers"]
        in_force = [each.get("resources") for each in pod["status"]["containerStatuses"]]
        return bool(
            domain["cpu"]["sockets"] == sockets
            and parse(domain["memory"]["guest"]) == parse(memory)
            and parse(container["resources"]["requests"]["cpu"]).milli() == sockets * MILLI_PER_VCPU
            and in_force == [container["resources"]]
            and parse(told.get("guestRequested", "0")) == parse(memory)
        )

    # ------------------------------------------------------------ what must be so

    def settles(self, seconds: float = CHANGE_SECONDS) -> None:
        """Return once instance and VM say that the guest has the size asked for."""
        try:
            until(f"{self.asked} of {self.name}", self.is_settled, seconds)
        except AssertionError as error:
            status = json.dumps(self.host.get("vmi", self.name)["status"], indent=1)
            log = self.host.server.log.read_text()[-3000:]
            raise AssertionError(f"{error}\n{status}\n{log}") from None

    def has_what_it_asked_for(self) -> None:
        """Expect the size asked for, in the guest, its pod and its cgroup, and no trouble."""
        self.settles()
        self.holds(*self.asked)
        conditions = {each["type"] for each in self.pod["status"]["conditions"]}
        assert conditions.isdisjoint({"PodResizePending", "PodResizeInProgress"}), conditions
        self.nobody_changed_the_manifest()

    def holds(self, sockets: int, memory: str) -> None:
        """Expect a size in the guest, its pod and its cgroup, whatever is asked for."""
        look, born = self.look(), self.born
        grown = parse(memory).bytes - born.memory
        assert (look.cpus, look.memory - born.look.memory) == (sockets, grown), look
        self._never_stopped(look)
        self.pod_holds(sockets, memory)
        self.cgroup_enforces()

    def pod_holds(self, sockets: int, memory: str) -> None:
        """Expect the pod to ask for just what that size needs, and to have got it."""
        grown = parse(memory).bytes - self.born.memory
        more = grown + grown // PAGE_TABLES + (sockets - self.born.sockets) * BYTES_PER_VCPU
        requests, limits = self.resources["requests"], self.resources.get("limits")
        assert parse(requests["cpu"]).milli() == sockets * MILLI_PER_VCPU, requests
        assert parse(requests["memory"]).bytes == self.born.requested + more, requests
        if limits:  # as a quota on limits demands: whole CPUs, and twice the memory
            assert parse(limits["cpu"]).milli() == sockets * 1000, limits
            assert parse(limits["memory"]).bytes == 2 * parse(requests["memory"]).bytes, limits
        pod = self.pod
        (status,) = pod["status"]["containerStatuses"]
        assert status["resources"] == self.resources, status
        assert status["allocatedResources"] == requests, status
        assert status["restartCount"] == 0, status

    def cgroup_enforces(self) -> None:
        """Expect the kernel to keep the pod to what it holds."""
        requests, limits = self.resources["requests"], self.resources.get("limits") or {}
        cpu = parse(limits["cpu"]).milli() if limits else None
        memory = parse(limits["memory"]).bytes if limits else None
        version, *enforced = self._cgroup()
        milli = parse(requests["cpu"]).milli()
        weight = cgroups.weight(milli) if version == 2 else milli * 1024 // 1000
        quota = None if cpu is None else cpu * 100  # microseconds of 100 ms
        assert enforced == [weight, quota, memory], (enforced, weight, quota, memory)

    def _cgroup(self) -> tuple[int, int, int | None, int | None]:
        """Return the version, the CPU weight, the CPU quota and the memory limit of the pod."""
        version, cpu = self._folder("cpu")
        if version == 2:
            weight, quota = "cpu.weight", (cpu / "cpu.max").read_text().split()[0]
        else:
            weight, quota = "cpu.shares", (cpu / "cpu.cfs_quota_us").read_text().strip()
        shown, memory = self._folder("memory")
        file = memory / ("memory.max" if shown == 2 else "memory.limit_in_bytes")
        limit = file.read_text().strip()
        unlimited = limit == "max" or int(limit) > 1 << 60
        return (
            version,
            int((cpu / weight).read_text()),
            None if quota in ("max", "-1") else int(quota),
            None if unlimited else int(limit),
        )

    def _folder(self, controller: str) -> tuple[int, Path]:
        """Return the version and the folder of the pod's cgroup, where QEMU must be."""
        pid = self.qemu()[0]
        own = Path(f"/proc/{pid}/cgroup").read_text()
        for found in cgroups.hierarchies(Path("/proc/self/mountinfo").read_text(), own):
            if controller in found.controllers:
                folder = Path(found.mount, found.own)
                assert folder.name == f"pod{self.pod['metadata']['uid']}", folder
                return found.version, folder
        raise AssertionError(f"nothing controls {controller}")

    def _never_stopped(self, look: Look) -> None:
        """Expect the same QEMU and boot as ever, running all the time, and no migration."""
        born = self.born.look
        assert (self.qemu(), look.boot) == (self.born.qemu, born.boot), (look, self.born)
        ran, passed = look.uptime - born.uptime, look.asked - born.answered
        assert ran > passed - 1, (ran, passed)  # its clock stands still while its CPUs do
        migrations = self.host.read(MIGRATIONS)["items"]
        assert migrations == [], migrations
        held_back = self.host.condition("vm", self.name, "RestartRequired")
        assert not held_back, held_back

    def nobody_changed_the_manifest(self) -> None:
        """Expect the VM to be as its owner's file says, whatever happened since."""
        done = self.host.server.run_kubectl("diff", "-f", "-", input=yaml.safe_dump(self.manifest))
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"

    def describes(self, *words: str) -> None:
        """Expect `kubectl describe vm` to tell these."""

        def told() -> str:
            shown = self.host.server.kubectl("describe", "vm", self.name)
            return " ".join(shown.partition("\nEvents:")[2].split())

        try:
            until("events", lambda: all(each in told() for each in words), 10)
        except AssertionError as error:
            raise AssertionError(f"{error}: {told()}") from None

    # ------------------------------------------------------------ inside

    def look(self) -> Look:
        """Ask the guest what it has."""
        asked = time.monotonic()
        lines = self.host.shell(self.name, _LOOK).splitlines()
        kib = int(lines[1].split()[1])
        return Look(int(lines[0]), kib * 1024, lines[2], float(lines[3]), asked, time.monotonic())

    def qemu(self) -> tuple[int, object]:
        """Return what tells one QEMU from another."""
        pid = self.host.qemu(self.name)
        return pid, process.seen(pid)

    @contextmanager
    def counting(self) -> Iterator[Counter]:
        """Keep one CPU of the guest busy with counting for as long as the block lasts."""
        counter = Counter(self)
        counter.start()
        try:
            yield counter
        finally:
            counter.stop()


class Counter:
    """A process in the guest that counts, and remembers for how long it could not."""

    #: No other process is started, so that nothing but a stop of its CPU makes a gap.
    _SCRIPT = """
        echo $$ > /tmp/counter; count=0; longest=0; last=
        while :; do
            read up idle < /proc/uptime; now=${up%.*}${up#*.}
            gap=$((now - ${last:-$now})); last=$now; count=$((count + 1))
            [ $gap -le $longest ] || longest=$gap
            echo $count $longest > /tmp/counted
        done
    """

    def __init__(self, guest: LiveGuest) -> None:
        self._host, self._name = guest.host, guest.name

    def start(self) -> None:
        self._host.shell(
            self._name,
            f"echo '{self._SCRIPT}' > /tmp/count;"
            " setsid sh /tmp/count > /dev/null 2>&1 < /dev/null &",
        )
        until("the counter", lambda: self.read() is not None)

    def read(self) -> tuple[int, float] | None:
        """Return how far it has counted and its longest gap in seconds, None amid its writing."""
        words = self._host.shell(self._name, "cat /tmp/counted || true").split()
        return (int(words[0]), int(words[1]) / 100) if len(words) == 2 else None

    def now(self) -> tuple[int, float]:
        """Return how far it has counted and its longest gap in seconds."""
        found: list[tuple[int, float]] = []

        def whole() -> bool:
            read = self.read()
            found.extend([read] if read else [])
            return bool(found)

        until("a whole number", whole)
        return found[0]

    def stop(self) -> None:
        self._host.shell(self._name, "kill $(cat /tmp/counter); rm -f /tmp/count*")


class Editor:
    """Somebody who edits a VM over one open connection, as fast as it goes."""

    def __init__(self, guest: LiveGuest) -> None:
        self._guest = guest
        self._path = f"/apis/kubevirt.io/v1/namespaces/default/virtualmachines/{guest.name}"

    @cached_property
    def _connection(self) -> http.client.HTTPSConnection:
        host = self._guest.host
        url = urlsplit(host.server.url)
        return http.client.HTTPSConnection(
            url.hostname or "", url.port, context=host.context, timeout=SECONDS
        )

    def ask(self, sockets: int, memory: str) -> None:
        """Change the size; return when the server has taken it."""
        self._guest.manifest = sized(self._guest.manifest, sockets, memory)
        domain = {"cpu": {"sockets": sockets}, "memory": {"guest": memory}}
        body = {"spec": {"template": {"spec": {"domain": domain}}}}
        kind = {"Content-Type": "application/merge-patch+json"}
        self._connection.request("PATCH", self._path, json.dumps(body), kind)
        with self._connection.getresponse() as answer:
            said = answer.read()
        assert answer.status == 200, said

    def close(self) -> None:
        self._connection.close()
