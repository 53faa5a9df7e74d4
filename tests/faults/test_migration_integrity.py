"""What a guest has synced stays, while it is moved to and fro ten times under that load.

Two guests beside it, which run nothing, ask for moves at the same time: no more of them go on than
the limits allow, and those that are called off leave nothing behind.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator

import pytest

from ..guest.guest_host import IMAGE, GuestHost, Object, a_bare_vm, image_missing, until
from ..guest.moving_guest import (
    FINAL,
    MOVE_SECONDS,
    MovingGuest,
    Ticks,
    a_movable_vm,
    sent_slowly,
    two_nodes,
)
from .test_volume_integrity import BLOCK, BLOCKS, LABEL, WRITER, journals

pytestmark = [
    pytest.mark.guest,
    pytest.mark.soak,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

CLAIM = "shared"
MOVES = 10


@pytest.fixture(scope="module")
def host() -> Iterator[GuestHost]:
    with two_nodes() as host:
        yield host


@pytest.fixture
def guest(host: GuestHost) -> MovingGuest:
    """A guest that writes to a disk of its own all the time, and counts."""
    host.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": str(BLOCKS * BLOCK)}},
            },
        }
    )
    file = host.server.home / "shared.raw"
    file.write_bytes(f"{LABEL}{CLAIM}\n".encode().ljust(BLOCKS * BLOCK, b"\0"))
    filling = ("--pvc", CLAIM, "--data-dir", str(host.server.data))
    host.run("livevirt", "volume", "import", str(file), *filling)
    vm = a_movable_vm("writing")
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["devices"]["disks"].append({"name": "data", "disk": {"bus": "virtio"}})
    spec["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}})
    guest = MovingGuest(host, vm)
    guest.boot()
    host.shell(
        guest.name,
        f"cat > /tmp/writer <<'END'\n{WRITER}END\n"
        "setsid /lib/guest/busybox sh /tmp/writer > /dev/null 2>&1 < /dev/null &",
    )
    return guest


def synced(guest: MovingGuest) -> int:
    return int(guest.host.shell(guest.name, "grep -c ^synced /tmp/journal 2>/dev/null || true"))


def test_given_ten_moves_while_it_writes_then_nothing_a_guest_has_synced_is_lost(
    guest: MovingGuest,
) -> None:
    host, name = guest.host, guest.name
    with Ticks(host) as ticks:
        ticks.counts_on()
        for number in range(MOVES):
            before = synced(guest)
            guest.move(f"move-{number}")
            host.found(name)
            until("more blocks", lambda before=before: synced(guest) > before, MOVE_SECONDS)
    guest.went_on()
    ticks.never_went_back()
    host.shell(name, "touch /tmp/stop; until [ -e /tmp/stopped ]; do usleep 50000; done")
    journal = journals(host.shell(name, "cat /tmp/journal"))[CLAIM]
    assert len(journal.synced) > MOVES
    inside = host.shell(
        name, "for d in /sys/block/vd*; do dd if=/dev/${d##*/} bs=1M count=2 iflag=direct"
        " 2> /dev/null | sha256sum; done",
    )  # fmt: skip
    host.delete(name)
    content = host.disk_of(CLAIM).read_bytes()
    assert journal.wrong(content) == []
    assert content[: len(LABEL)] == LABEL.encode()
    assert hashlib.sha256(content[: 2 << 20]).hexdigest() in inside


# ------------------------------------------------------------ many at once


def going(migrations: list[Object]) -> list[str]:
    """Return the names of the guests that are on their way."""
    return [
        each["spec"]["vmiName"]
        for each in migrations
        if (each.get("status") or {}).get("phase", "") not in ("", "Pending", *FINAL)
    ]


def test_given_more_moves_than_a_node_may_send_then_they_take_turns_or_leave_nothing(
    host: GuestHost,
) -> None:
    names = ["one", "two", "three", "four"]

    def asked() -> list[Object]:
        return [each for guest in guests.values() for each in guest.migrations()]

    for name in names:
        vm = a_bare_vm(name)
        vm["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node01"}
        host.apply(vm)
    guests = {name: MovingGuest(host, {"metadata": {"name": name}}) for name in names}
    for name in names:
        until(f"{name} to run", lambda name=name: host.phase(name) == "Running", MOVE_SECONDS)
    # Tied to a node they could not leave it.
    for name in names:
        host.server.kubectl(
            "patch", "vm", name, "--type", "json", "-p",
            '[{"op": "remove", "path": "/spec/template/spec/nodeSelector"}]',
        )  # fmt: skip
        until(
            f"{name} to be free",
            lambda name=name: not host.get("vmi", name)["spec"].get("nodeSelector"),
            MOVE_SECONDS,
        )
    with sent_slowly(host, "16Ki"):  # there is next to nothing in them
        for name in names:
            guests[name].ask(f"{name}-slow")
        until("two to go", lambda: len(going(asked())) == 2, MOVE_SECONDS)
        for _ in range(20):
            assert len(going(asked())) <= 2
        for name in names:
            host.server.kubectl("delete", "vmim", f"{name}-slow", "--wait=false")
        until("all to be called off", lambda: not asked(), MOVE_SECONDS)
    for name in names:
        guests[name].is_alone()
        assert guests[name].node == "node01"
    for name in names:
        guests[name].ask(f"{name}-fast")
    most = 0

    def ended() -> bool:
        nonlocal most
        items = asked()
        most = max(most, len(going(items)))
        return all((each.get("status") or {}).get("phase") == "Succeeded" for each in items)

    until("all to arrive", ended, MOVE_SECONDS)
    assert 0 < most <= 2
    for name in names:
        guests[name].is_alone()
        assert guests[name].node == "node02"
    host.discard(*names)
