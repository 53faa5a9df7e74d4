"""CPUs of a guest's own and memory in huge pages, looked at in /proc, in the cgroup and inside."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livevirt.node import cgroups
from livevirt.node.exclusive import layout

from .guest_host import GuestHost, Object, a_bare_vm, a_vm, running_host, until

pytestmark = [pytest.mark.guest, pytest.mark.long]

PAGE = 2 * 2**20
PAGES = 512 * 2**20 // PAGE  # of a guest with 512Mi
_PAGES_FILE = Path("/proc/sys/vm/nr_hugepages")
CPUS = sorted(os.sched_getaffinity(0))
POOL = CPUS[1:]  # one is never given away
MIXED = 4  # CPUs: two for vCPUs, one for the emulator, one that stays


@pytest.fixture(scope="module")
def pages() -> Iterator[bool]:
    """Huge pages for one guest, taken back afterwards; whether the kernel gave them."""
    if not os.access(_PAGES_FILE, os.W_OK):
        yield False
        return
    _add_pages(PAGES)
    try:
        yield meminfo("HugePages_Free") >= PAGES
    finally:
        _add_pages(-PAGES)


def _add_pages(number: int) -> None:
    # Added to what is there: others on this machine may be counting on theirs.
    _PAGES_FILE.write_text(str(max(0, int(_PAGES_FILE.read_text()) + number)))


@pytest.fixture(scope="module")
def host(pages: bool) -> Iterator[GuestHost]:
    """A server that was started when the pages were there; it reads them once."""
    if len(CPUS) < 2:
        pytest.skip("this machine has one CPU, and that is never given away")
    with running_host() as host:
        if not cpuset_of("", host):
            pytest.skip("this machine has no cpuset controller that we may use")
        yield host


def with_cpu(vm: Object, **cpu: Any) -> Object:
    """Return a VM that has CPUs of its own."""
    own = {"cores": 1, "dedicatedCpuPlacement": True, **cpu}
    vm["spec"]["template"]["spec"]["domain"]["cpu"] = own
    return vm


def in_pages(vm: Object, guest: str) -> Object:
    memory = {"guest": guest, "hugepages": {"pageSize": "2Mi"}}
    vm["spec"]["template"]["spec"]["domain"]["memory"] = memory
    return vm


def sized(vm: Object, instancetype: str, vcpus: int, memory: str) -> Object:
    """Return a VM of a class of instance types, with a size of its own."""
    vm["spec"]["instancetype"] = {"name": instancetype}
    domain = vm["spec"]["template"]["spec"]["domain"]
    domain |= {"cpu": {"guest": vcpus}, "memory": {"guest": memory}}
    return vm


def cpuset_of(name: str, host: GuestHost) -> Path | None:
    """Return the cpuset of a guest's QEMU, or the one our cpusets are below of."""
    own = Path("/proc/self/cgroup").read_text()
    for found in cgroups.hierarchies(Path("/proc/self/mountinfo").read_text(), own):
        if cgroups.CPUSET in found.controllers:
            if not name:
                return Path(found.mount, found.own)
            lines = Path(f"/proc/{host.qemu(name)}/cgroup").read_text().splitlines()
            key = ":cpuset:" if found.version == 1 else "0::"
            path = next(line.partition(key)[2] for line in lines if key in line)
            return Path(found.mount, path.strip("/"))
    return None


def cpuset(name: str, host: GuestHost) -> list[int]:
    folder = cpuset_of(name, host)
    assert folder is not None
    return cgroups.cpu_list((folder / "cpuset.cpus").read_text())


def affinities(pid: int) -> dict[str, list[list[int]]]:
    """Return the CPUs of the threads of a process, by what they are called."""
    found: dict[str, list[list[int]]] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        told = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())
        found.setdefault(told["Name"], []).append(cgroups.cpu_list(told["Cpus_allowed_list"]))
    return found


def meminfo(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def huge_pages(pid: int) -> int:
    """Return how many huge pages a process has, by what the kernel counts as its own."""
    told = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^HugetlbPages:\s+(\d+) kB", told, re.MULTILINE)
    assert found
    return int(found[1]) * 1024 // PAGE


def why_unscheduled(host: GuestHost, name: str) -> str:
    for pod in host.pods(name):
        for each in pod["status"].get("conditions") or ():
            if each["type"] == "PodScheduled" and each["status"] == "False":
                return f"{each['reason']}: {each['message']}"
    return ""


def running(host: GuestHost, *names: str) -> None:
    for name in names:
        until(f"{name} to run", lambda name=name: host.phase(name) == "Running")


@pytest.fixture(scope="module")
def guests(host: GuestHost, pages: bool) -> GuestHost:
    """A shared guest that is there first, and one with a CPU of its own, in huge pages."""
    host.apply(a_bare_vm("beside"))
    running(host, "beside")
    assert cpuset("beside", host) == CPUS
    alone = with_cpu(a_vm("alone"))
    if pages:
        sized(alone, "m1.custom", vcpus=1, memory="512Mi")
    domain = alone["spec"]["template"]["spec"]["domain"]
    domain["ioThreadsPolicy"] = "auto"
    domain["cpu"]["dedicatedCpuPlacement"] = True
    host.apply(alone)
    running(host, "alone")
    return host


def test_a_guest_has_its_memory_in_huge_pages(guests: GuestHost, pages: bool) -> None:
    host = guests
    if not pages:
        pytest.skip(f"the kernel does not set {PAGES} huge pages aside")
    pid = host.qemu("alone")
    assert huge_pages(pid) == PAGES
    assert meminfo("HugePages_Total") - meminfo("HugePages_Free") >= PAGES
    (pod,) = host.pods("alone")
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits["hugepages-2Mi"] == "512Mi"

    host.apply(in_pages(a_bare_vm("unpaged"), "64Mi"))
    until("it to wait", lambda: why_unscheduled(host, "unpaged"))
    assert "Insufficient hugepages-2Mi" in why_unscheduled(host, "unpaged")
    host.delete("unpaged")

    host.answers("alone")
    kilobytes = int(host.shell("alone", "awk '/MemTotal/ {print $2}' /proc/meminfo"))
    assert 400 * 1024 < kilobytes < 512 * 1024


def test_a_guest_has_a_cpu_of_its_own_and_nobody_else_gets_it(
    guests: GuestHost, pages: bool
) -> None:
    host = guests
    (own,) = cpuset("alone", host)
    assert own in POOL
    rest = [cpu for cpu in CPUS if cpu != own]
    until("the others to leave it", lambda: cpuset("beside", host) == rest)
    pinned, shared = affinities(host.qemu("alone")), affinities(host.qemu("beside"))
    assert {tuple(cpus) for each in pinned.values() for cpus in each} == {(own,)}
    assert "IO io0" in pinned, "its disk is served by a thread"
    assert all(own not in cpus for each in shared.values() for cpus in each)
    (pod,) = host.pods("alone")
    assert pod["spec"]["nodeSelector"]["kubevirt.io/cpumanager"] == "true"
    assert pod["status"]["qosClass"] == "Guaranteed"

    # More than is left: it waits, and says for what; so does an emulator apart on two CPUs.
    host.apply(with_cpu(a_bare_vm("too-many"), cores=len(POOL)))
    host.apply(with_cpu(a_bare_vm("isolated"), cores=len(POOL), isolateEmulatorThread=True))
    for name in ("too-many", "isolated"):
        until(f"{name} to wait", lambda name=name: why_unscheduled(host, name))
        assert why_unscheduled(host, name).startswith("Unschedulable: 0/1 nodes are available:")
        assert "Insufficient cpu" in why_unscheduled(host, name)

    # So does a whole class of them: four vCPUs, one CPU for the emulator, 4Gi in huge pages.
    host.apply(sized(a_bare_vm("compute"), "cx1.custom", vcpus=4, memory="4Gi"))
    until("it to wait", lambda: why_unscheduled(host, "compute"))
    assert "Insufficient hugepages-2Mi" in why_unscheduled(host, "compute")
    assert ("Insufficient cpu" in why_unscheduled(host, "compute")) is (len(POOL) - 1 < 5)
    host.delete("compute")

    # A server that is killed and comes back knows whose the CPU is.
    host.answers("alone")
    assert host.shell("alone", "nproc") == "1"
    host.server.kill()
    host.server.start()
    host.apply(a_bare_vm("later"))
    running(host, "later")
    assert cpuset("later", host) == rest
    assert why_unscheduled(host, "too-many")

    # Given back, it is everybody's for a moment and then the next one's.
    free = meminfo("HugePages_Free")
    host.delete("alone", "isolated")
    if pages:
        until("its pages to be free", lambda: meminfo("HugePages_Free") == free + PAGES)
    running(host, "too-many")
    assert cpuset("too-many", host) == POOL
    for name in ("later", "beside"):
        until(f"{name} to leave them", lambda name=name: cpuset(name, host) == CPUS[:1])
    host.delete("too-many")
    until("all CPUs to be shared", lambda: cpuset("beside", host) == CPUS)


def test_a_guest_s_memory_is_on_the_numa_node_of_its_cpu(host: GuestHost, pages: bool) -> None:
    if not pages:
        pytest.skip(f"the kernel does not set {PAGES} huge pages aside")
    vm = in_pages(with_cpu(a_bare_vm("near"), numa={"guestMappingPassthrough": {}}), "64Mi")
    host.apply(vm)
    running(host, "near")
    pid = host.qemu("near")
    assert huge_pages(pid) == 64 * 2**20 // PAGE
    maps = Path(f"/proc/{pid}/numa_maps").read_text().splitlines()
    (policy,) = [line.split()[1] for line in maps if " huge" in line]
    (cpu,) = cpuset("near", host)
    (near,) = layout([cpu])
    assert policy == f"bind:{near.cell}"
    host.delete("near")


def test_given_a_class_that_isolates_the_emulator_then_it_is_on_no_vcpu_s_cpu(
    host: GuestHost, pages: bool
) -> None:
    if len(CPUS) < MIXED:
        pytest.skip(f"this needs {MIXED} CPUs, and this machine has {len(CPUS)}")
    if not pages:
        pytest.skip(f"the kernel does not set {PAGES} huge pages aside")
    host.apply(sized(a_bare_vm("apart"), "cx1.custom", vcpus=2, memory="64Mi"))
    running(host, "apart")
    own = cpuset("apart", host)
    assert len(own) == 3
    vcpus, others = [], []
    for name, each in affinities(host.qemu("apart")).items():
        (vcpus if name.startswith("CPU ") else others).extend(each)
    assert sorted(vcpus) == [[own[0]], [own[1]]]
    assert all(cpus == [own[2]] for cpus in others)
