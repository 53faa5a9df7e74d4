"""What QEMU takes beyond the guest's memory stays within what its pod asks for on top of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from livevirt.kube.objects.quantity import parse

from .guest_host import GuestHost, Object, a_vm
from .web_site import serving

pytestmark = [pytest.mark.guest, pytest.mark.long]

NAME = "loaded"
MiB = 1 << 20
HOST = "10.0.2.2"  # the machine under the guest, as the guest's network has it
PAGE = bytes(16 * MiB)
SECTOR = 512


@pytest.fixture(scope="module")
def host(guest_host: GuestHost) -> Iterator[GuestHost]:
    """The server, with one guest of two CPUs and a disk to write to."""
    vm = a_vm(NAME)
    spec = vm["spec"]["template"]["spec"]
    # On QEMU's user network, which takes memory of its own.
    spec["domain"]["devices"]["interfaces"] = [{"name": "default", "passtBinding": {}}]
    spec["domain"]["cpu"] = {"sockets": 2}
    spec["domain"]["devices"]["disks"].append({"name": "data", "disk": {"bus": "virtio"}})
    spec["volumes"].append({"name": "data", "emptyDisk": {"capacity": "64Mi"}})
    guest_host.apply(vm)
    guest_host.answers(NAME)
    yield guest_host
    guest_host.discard(NAME)


def mapped(pid: int) -> dict[int, int]:
    """Return how many bytes of the mappings of each size are in memory."""
    found: dict[int, int] = {}
    size = 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "Size":
            size = 1024 * int(rest.split()[0])
        elif name == "Rss":
            found[size] = found.get(size, 0) + 1024 * int(rest.split()[0])
    return found


def peak(pid: int) -> int:
    """Return the most bytes that a process ever had in memory."""
    text = Path(f"/proc/{pid}/status").read_text()
    (found,) = re.findall(r"^VmHWM:\s+(\d+) kB$", text, re.MULTILINE)
    return 1024 * int(found)


def guest_memory(vmi: Object, pid: int) -> int:
    """Return how many bytes of the guest's memory are in the machine's: boot and head-room."""
    memory = vmi["spec"]["domain"]["memory"]
    boot, most = parse(memory["guest"]).bytes, parse(memory["maxGuest"]).bytes
    sizes = mapped(pid)
    return sum(sizes.get(size, 0) for size in {boot, most - boot})


def test_given_a_guest_that_uses_all_it_has_then_qemu_takes_no_more_than_the_overhead(
    host: GuestHost,
) -> None:
    with serving({"/page": PAGE}) as site:
        written = host.shell(
            NAME,
            # All memory but what keeps the guest alive is written; disk and network follow, at
            # the same time and with some of it still in use.
            "free=$(awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo);"
            "dd if=/dev/zero of=/tmp/fill bs=1M count=$((free - 24)) && rm /tmp/fill;"
            "dd if=/dev/zero of=/tmp/fill bs=1M count=$((free / 2));"
            "disk=/dev/vdb;"
            "for i in 0 1 2 3; do"
            " dd if=/dev/zero of=$disk bs=1M count=16 seek=$((16 * i)) conv=notrunc,fsync &"
            f" wget -q -O /dev/null http://{HOST}:{site.server_port}/page &"
            " done; wait;"
            "for i in 0 1 2 3; do dd if=$disk of=/dev/null bs=4k count=2000 skip=$((4096 * i)) &"
            " md5sum /tmp/fill >&2 & done; wait; rm /tmp/fill;"
            "awk '{print $7}' /sys/block/vdb/stat",
        )
    assert site.sent == 4 * ["/page"]
    assert int(written) * SECTOR >= 64 * MiB
    pid, vmi = host.qemu(NAME), host.get("vmi", NAME)
    (pod,) = host.pods(NAME)
    allowed = int(pod["metadata"]["annotations"]["kubevirt.io/memory-overhead-bytes"])
    used = guest_memory(vmi, pid)
    assert used > 0.85 * parse(vmi["spec"]["domain"]["memory"]["guest"]).bytes, "it was idle"
    assert 0 < peak(pid) - used < allowed, f"{(peak(pid) - used) / MiB:.0f} MiB were taken"
