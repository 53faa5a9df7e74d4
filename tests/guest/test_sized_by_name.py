"""What a preference and an instance type's policy come to, seen in the guest and in its QEMU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from .guest_host import IMAGE, GuestHost, Object, a_vm, image_missing, running_host

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

MACHINE = "pc-q35-6.2"
DISKS = ("one", "two", "three")


@pytest.fixture(scope="module")
def host() -> Iterator[GuestHost]:
    with running_host() as host:
        yield host


def an_object(kind: str, name: str, spec: Object) -> Object:
    version = "instancetype.kubevirt.io/v1beta2"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def a_type(name: str, cpu: int = 1, **spec: object) -> Object:
    sizes = {"cpu": {"guest": cpu}, "memory": {"guest": "256Mi"}}
    return an_object("VirtualMachineInstancetype", name, {**sizes, **spec})


def named(name: str, *disks: str, bus: str = "", **matchers: str) -> Object:
    """Return a VM that has its size from a type of its namespace, and empty disks."""
    vm = a_vm(name)
    for role, to in matchers.items():
        vm["spec"][role] = {"name": to, "kind": f"virtualmachine{role}"}
    spec = vm["spec"]["template"]["spec"]
    del spec["domain"]["memory"]
    for disk in disks:
        drive = {"bus": bus} if bus else {}
        spec["domain"]["devices"]["disks"].append({"name": disk, "serial": disk, "disk": drive})
        spec["volumes"].append({"name": disk, "emptyDisk": {"capacity": "4Mi"}})
    return vm


def test_a_guest_is_as_its_preference_says_where_its_vm_says_nothing(host: GuestHost) -> None:
    preference = {
        "cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 2}},
        "devices": {"preferredDiskBus": "sata"},
        "machine": {"preferredMachineType": MACHINE},
    }
    host.apply(
        a_type("quad", 4),
        an_object("VirtualMachinePreference", "spread", preference),
        named("spread", "extra", instancetype="quad", preference="spread"),
    )
    host.answers("spread")
    told = host.shell("spread", "cat /proc/cpuinfo").splitlines()
    seen = [line.split(":")[1].strip() for line in told if line.startswith("physical id")]
    cores = {line.split(":")[1].strip() for line in told if line.startswith("cpu cores")}
    assert sorted(seen) == ["0", "0", "1", "1"], "two sockets of two cores"
    assert cores == {"2"}
    assert host.shell("spread", "cat /sys/class/dmi/id/product_version") == MACHINE
    links = host.shell("spread", "ls /dev/disk/by-id").split()
    assert "ata-QEMU_HARDDISK_extra" in links, links
    root = host.shell("spread", "readlink -f /sys/block/vda")
    assert "/virtio" in root, "the VM's own word on its disk counts"
    host.discard("spread")


POLICIES: dict[str, tuple[Object, dict[str, str]]] = {
    "shared": (
        {"ioThreadsPolicy": "shared"},
        {"root": "io0", "one": "io0", "two": "io0", "three": "io0"},
    ),
    "pool": (
        {"ioThreadsPolicy": "supplementalPool", "ioThreads": {"supplementalPoolThreadCount": 2}},
        {"root": "io0", "one": "io1", "two": "io0", "three": "io1"},
    ),
}


@pytest.mark.parametrize(("policy", "served"), POLICIES.values(), ids=POLICIES)
def test_disks_are_served_by_the_threads_of_the_types_policy(
    host: GuestHost, policy: Object, served: dict[str, str], request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    host.apply(a_type(name, **policy), named(name, *DISKS, bus="virtio", instancetype=name))
    host.answers(name)
    pid = host.qemu(name)
    assert threads_of_disks(pid) == served
    before = turns(pid)
    assert set(before) == {f"IO {thread}" for thread in served.values()}
    for disk in DISKS:
        at = f"/dev/disk/by-id/virtio-{disk}"
        script = f"echo written > {at} && sync && head -c 7 {at}"
        assert host.shell(name, script) == "written"
    after = turns(pid)
    assert all(after[thread] > before[thread] for thread in before), (before, after)
    host.discard(name)


def threads_of_disks(pid: int) -> dict[str, str]:
    """Return the thread of each disk, as QEMU was started."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    devices = [json.loads(word) for word in words if word.startswith('{"driver')]
    served = {device["id"]: device["iothread"] for device in devices if "iothread" in device}
    return {id.removeprefix("ua-"): thread for id, thread in served.items()}


def turns(pid: int) -> dict[str, int]:
    """Return how often each I/O thread of a QEMU has had a CPU."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        comm = (task / "comm").read_text().strip()
        if comm.startswith("IO io"):  # QEMU has one of its own for the monitor
            found[comm] = int((task / "schedstat").read_text().split()[2])
    return found
