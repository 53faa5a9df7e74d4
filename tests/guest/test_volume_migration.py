"""Volumes whose content goes to another claim while the guest writes to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from livevirt.qemu.observe import observe
from livevirt.qemu.session import Session

from .guest_host import IMAGE, GuestHost, Object, a_bare_vm, image_missing, running_host, until
from .hot_volumes import BY_ID, SECONDS, HotGuest, a_claim, on_claim
from .moving_guest import MovingGuest, a_movable_vm, two_nodes

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

SIZE = "64Mi"
FAIL_POINT = str(Path(__file__).parents[1] / "faults" / "fail_point.py")
SLOW = 2**16  # bytes a second: it lasts minutes
BALLAST = 28  # MiB that are there to be copied: QEMU does the first 16 at once
#: A disk from the start and one that may come and go, and where the guest has them.
DISKS = {"boot": f"{BY_ID}/virtio-boot", "hot": f"{BY_ID}/scsi-0QEMU_QEMU_HARDDISK_hot"}

#: Writes files over and over, each with its checksum, until it is told to stop.
WRITER = """
cd /mnt/$0; i=0
while [ ! -e /run/stop ]; do
  i=$((i + 1)); n=$((i % 9))
  dd if=/dev/urandom of=f$n.new bs=64k count=4 conv=fsync 2>/dev/null
  sha256sum f$n.new | sed "s/f$n.new/f$n/" > s$n.new
  mv f$n.new f$n; mv s$n.new s$n; sync; echo $i > /run/$0.count
done
touch /run/$0.stopped
"""


class Writing(HotGuest):
    """A guest that writes to the disks that are copied."""

    def __init__(self, host: GuestHost) -> None:
        super().__init__(host, "copied")
        self.manifest["spec"]["updateVolumesStrategy"] = "Migration"
        volume = {"name": "boot", "persistentVolumeClaim": {"claimName": "boot-a"}}
        self.add(volume, disk={"bus": "virtio"}, serial="boot")
        self.add(on_claim("hot", "hot-a"), disk={"bus": "scsi"})

    def begin(self) -> None:
        for name, device in DISKS.items():
            self.is_there(name)
            self.shell(f"mkfs.ext4 -q {device}; mkdir -p /mnt/{name}; mount {device} /mnt/{name}")
            self.write(name)
        self.goes_on()

    def is_there(self, name: str) -> None:
        listed = f"ls {DISKS[name]} 2>/dev/null || true"
        until(f"disk {name}", lambda: self.shell(listed), SECONDS)

    def write(self, name: str) -> None:
        self.shell(
            f"rm -f /run/{name}.stopped; sh -c '{WRITER}' {name} </dev/null >/dev/null 2>&1 &"
        )

    def goes_on(self) -> None:
        """Expect the guest to write on, to both disks."""
        for name in DISKS:
            before = self.count_of(name)  # or 0, which will do
            until(f"{name} to be written", lambda n=name, b=before: self.count_of(n) > b, SECONDS)

    def count_of(self, name: str) -> int:
        # It may be read just when it is written, and be empty.
        return int(self.shell(f"cat /run/{name}.count 2>/dev/null || true") or 0)

    def is_whole(self) -> None:
        """Expect every file to be what was written, when read again from the disk."""
        self.shell("touch /run/stop")
        for name in DISKS:
            stopped = f"ls /run/{name}.stopped 2>/dev/null || true"
            until("the writer to stop", lambda stopped=stopped: self.shell(stopped), SECONDS)
        for name, device in DISKS.items():
            self.shell(
                f"cd /; umount /mnt/{name}; echo 3 > /proc/sys/vm/drop_caches;"
                f" mount {device} /mnt/{name}; cd /mnt/{name}; cat s? | sha256sum -c -s"
            )
        self.shell("rm /run/stop")
        for name in DISKS:
            self.write(name)

    def remembers(self) -> None:
        """Expect what was on both disks before the guest died."""
        for name, device in DISKS.items():
            self.is_there(name)
            mounted = f"mkdir -p /mnt/{name}; mount {device} /mnt/{name}"
            assert self.shell(f"{mounted}; cat /mnt/{name}/marker") == "kept"
            self.write(name)

    # ------------------------------------------------------------ dying

    def edit_and_die(self, point: str) -> None:
        """Apply the manifest under a server that dies at a point; there is none afterwards."""
        server = self.host.server
        trace = server.home / "trace"
        trace.unlink(missing_ok=True)
        server.kill()
        server.start(sys.executable, FAIL_POINT, str(trace), point)
        until("the agent again", lambda: self.host.holds("vmi", self.name, "AgentConnected"))
        trace.touch()
        with contextlib.suppress(AssertionError):
            self.apply()
        until(f"the server to die {point}", lambda: not server.alive(), SECONDS)
        server.kill()  # what is left of it

    def goes_on_after(self) -> None:
        """Start the next server, and repeat the edit as whoever got no answer does."""
        self.host.server.start()
        self.apply()

    def copy_slowly(self) -> None:
        """Begin the copy of `hot` that a server had just made ready when it died."""

        async def begin(qmp: Session) -> None:
            now = await observe(qmp)
            drive, (target,) = now.drive("ua-hot"), now.idle_nodes
            assert drive is not None
            job = {"job-id": f"copy-{target}", "device": drive.node, "target": target}
            how = {"sync": "full", "copy-mode": "write-blocking", "auto-dismiss": False}
            await qmp.execute("blockdev-mirror", {**job, **how, "speed": SLOW})

        self._ask_qemu(begin)

    def copy_fast(self) -> None:
        """Let the copy go on without a limit."""

        async def hurry(qmp: Session) -> None:
            (copy,) = (await observe(qmp)).copies
            await qmp.execute("block-job-set-speed", {"device": f"copy-{copy.target}", "speed": 0})

        self._ask_qemu(hurry)

    def _ask_qemu(self, what: Callable[[Session], Coroutine[Any, Any, None]]) -> None:
        """Talk to QEMU while no server does: it listens to one at a time."""
        (path,) = self.host.server.data.glob("run/*/qmp.sock")

        async def ask() -> None:
            async with asyncio.timeout(30), await Session.connect(str(path)) as qmp:
                await what(qmp)

        asyncio.run(ask())

    # ------------------------------------------------------------ moving

    def move(self, **claims: str) -> None:
        """Give volumes other claims."""
        for volume in self.spec["volumes"]:
            if volume["name"] in claims:
                volume["persistentVolumeClaim"]["claimName"] = claims[volume["name"]]

    def on(self) -> dict[str, str]:
        """Return the claim that each volume is on, as the instance says."""
        listed = self.status().get("volumeStatus") or ()
        found = {each["name"]: each.get("persistentVolumeClaimInfo") or {} for each in listed}
        return {name: found.get(name, {}).get("claimName", "") for name in DISKS}

    def arrives(self, **claims: str) -> None:
        """Expect the volumes to be on these claims, and nothing else to be open or told."""
        try:
            until(f"to be on {claims}", lambda: self.on() == claims and not self.moves(), SECONDS)
        except AssertionError as error:
            log = self.host.server.log.read_text()[-3000:]
            raise AssertionError(f"{error}\n{self.status()}\n{log}") from None
        self.nothing_leaks()
        until("the VM to be told", lambda: not self.state(), SECONDS)
        self.needs_no_restart()

    def moves(self) -> list[Object]:
        found: list[Object] = self.status().get("migratedVolumes") or []
        return found

    def state(self) -> Object:
        """Return what the VM says of copies."""
        found: Object = (self.host.get("vm", self.name)["status"]).get("volumeUpdateState") or {}
        return found

    def history(self, since: str) -> list[Object]:
        """Return what became of the instance since a version, one object for each change."""
        url = urlsplit(self.host.server.url)
        connection = HTTPSConnection(url.hostname or "", url.port, context=self.host.context)
        path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
        connection.request("GET", f"{path}?watch=1&resourceVersion={since}&timeoutSeconds=1")
        with connection.getresponse() as answer:
            lines = answer.read().splitlines()
        connection.close()
        found = [json.loads(line)["object"] for line in lines]
        return [each for each in found if each["metadata"]["name"] == self.name]


@pytest.fixture(scope="module")
def host() -> Iterator[GuestHost]:
    with running_host() as host:
        names = [f"{disk}-{copy}" for disk in DISKS for copy in "abc"]
        host.apply(*(a_claim(name, SIZE) for name in names))
        yield host


@pytest.fixture(scope="module")
def guest(host: GuestHost) -> Writing:
    guest = Writing(host)
    guest.apply()
    host.answers(guest.name)
    guest.begin()
    return guest


def test_both_kinds_of_volumes_are_copied_while_the_guest_writes_to_them(guest: Writing) -> None:
    before = guest.host.get("vmi", guest.name)
    boot = guest.host.boot_id(guest.name)
    guest.move(boot="boot-b", hot="hot-b")
    guest.apply()
    guest.arrives(boot="boot-b", hot="hot-b")
    seen = guest.history(before["metadata"]["resourceVersion"])
    told = [
        (each["status"], each["reason"])
        for vmi in seen
        for each in vmi["status"]["conditions"]
        if each["type"] == "VolumesChange"
    ]
    assert ("True", "Copying") in told  # a claim that is not ready yet comes before
    assert {status for status, _ in told} == {"True"}, told
    assert not guest.host.condition("vmi", guest.name, "VolumesChange")
    guest.is_as_written()
    guest.goes_on()
    guest.is_whole()
    assert guest.host.boot_id(guest.name) == boot

    guest.add(on_claim("free", "hot-a"))  # nobody has it any more
    guest.apply()
    until("it to come", lambda: guest.claims() == {"hot": "hot-b", "free": "hot-a"}, SECONDS)
    guest.drop("free")
    guest.apply()
    until("it to go", lambda: set(guest.told()) == {"hot"}, SECONDS)


# ---------------------------------------------------------------- what goes wrong


def reason(guest: Writing) -> str:
    return str(guest.host.condition("vmi", guest.name, "VolumesChange").get("reason", ""))


def message(guest: Writing) -> str:
    return str(guest.host.condition("vmi", guest.name, "VolumesChange").get("message", ""))


@pytest.fixture
def back(guest: Writing) -> Iterator[Writing]:
    """The guest on the claims it began with."""
    guest.move(boot="boot-a", hot="hot-a")
    guest.apply()
    guest.arrives(boot="boot-a", hot="hot-a")
    yield guest
    if not guest.host.server.alive():
        guest.host.server.start()


@pytest.mark.long
def test_given_no_room_or_no_claim_then_it_says_so_and_the_guest_stays_where_it_is(
    back: Writing,
) -> None:
    guest = back
    guest.host.apply(a_claim("small", "16Mi"))
    guest.move(hot="small")
    guest.apply()
    until("no room", lambda: reason(guest) == "CopyFailed", SECONDS)
    assert "holds 16777216 bytes and the disk has 67108864" in message(guest)
    guest.move(hot="absent")
    guest.apply()
    until("no claim", lambda: reason(guest) == "FailedPvcNotFound", SECONDS)
    assert guest.on()["hot"] == "hot-a"
    guest.host.apply(a_claim("absent", SIZE))
    guest.arrives(boot="boot-a", hot="absent")
    guest.is_whole()


@pytest.mark.long
def test_given_a_claim_of_another_guest_then_it_is_waited_for(back: Writing) -> None:
    guest = back
    other = a_bare_vm("other")
    spec = other["spec"]["template"]["spec"]
    spec["domain"]["devices"]["disks"].append({"name": "data", "disk": {"bus": "virtio"}})
    claim = {"claimName": "hot-c"}
    spec["volumes"].append({"name": "data", "persistentVolumeClaim": claim})
    guest.host.apply(other)
    until("the other guest", lambda: guest.host.phase("other") == "Running")
    guest.move(hot="hot-c")
    guest.apply()
    until("it waits", lambda: reason(guest) == "ClaimInUse", SECONDS)
    assert "PVC hot-c is in use by VMI other" in message(guest)
    guest.host.delete("other")
    guest.arrives(boot="boot-a", hot="hot-c")
    guest.is_whole()


@pytest.mark.long
def test_given_a_larger_claim_then_the_disk_grows_when_it_is_there(back: Writing) -> None:
    back.host.apply(a_claim("large", "96Mi"))
    back.move(hot="large")
    back.apply()
    back.arrives(boot="boot-a", hot="large")
    device = f"blockdev --getsize64 {DISKS['hot']}"
    until("the guest to see it", lambda: back.shell(device) == str(96 << 20), SECONDS)
    back.is_whole()
    back.drop("hot")  # it is too large to go back
    back.shell("touch /run/stop")
    until("it to stop", lambda: back.shell("ls /run/hot.stopped 2>/dev/null || true"), SECONDS)
    back.shell("umount /mnt/hot; rm /run/stop")
    back.apply()
    until("it to go", lambda: not back.told(), SECONDS)
    back.add(on_claim("hot", "hot-a"), disk={"bus": "scsi"})
    back.apply()
    back.arrives(boot="boot-a", hot="hot-a")
    back.is_there("hot")
    back.shell(f"mount {DISKS['hot']} /mnt/hot")
    for name in DISKS:
        back.write(name)


@pytest.mark.long
def test_given_the_edit_is_taken_back_while_it_is_copied_then_nothing_has_changed(
    back: Writing,
) -> None:
    guest = back
    guest.shell(f"dd if=/dev/urandom of=/mnt/hot/ballast bs=1M count={BALLAST} conv=fsync")
    guest.move(hot="hot-b")
    guest.edit_and_die("before 1 qmp blockdev-mirror")
    guest.copy_slowly()
    guest.goes_on_after()
    until("it to be found", lambda: "% copied" in message(guest), SECONDS)
    assert guest.state()["volumeMigrationState"]["migratedVolumes"][0]["phase"] == "Copying"
    guest.goes_on()
    guest.move(hot="hot-a")
    guest.apply()
    until("it to be called off", lambda: reason(guest) == "VolumesChangeCancellation", SECONDS)
    guest.arrives(boot="boot-a", hot="hot-a")
    guest.goes_on()
    guest.is_whole()


@pytest.mark.long
def test_given_the_control_plane_dies_while_it_is_copied_then_the_next_one_goes_on(
    back: Writing,
) -> None:
    guest = back
    guest.shell(f"dd if=/dev/urandom of=/mnt/hot/ballast bs=1M count={BALLAST} conv=fsync")
    guest.move(hot="hot-b")
    guest.edit_and_die("before 1 qmp blockdev-mirror")
    guest.copy_slowly()
    guest.goes_on_after()
    until("it to be found", lambda: "% copied" in message(guest), SECONDS)
    guest.host.server.kill()
    guest.copy_fast()
    guest.host.server.start()
    guest.arrives(boot="boot-a", hot="hot-b")
    guest.goes_on()
    guest.is_whole()


POINTS = (
    "after 1 qmp blockdev-add",
    "after 1 qmp blockdev-mirror",
    "before 1 qmp job-complete",
    "after 1 qmp job-complete",
    "after 1 qmp job-dismiss",
    "after 1 qmp blockdev-del",
    "after 2 write virtualmachines.kubevirt.io",  # the VM knows of the copy
    "after 3 write virtualmachines.kubevirt.io",
    "after 1 write virtualmachineinstances.kubevirt.io",
    "after 2 write virtualmachineinstances.kubevirt.io",
    "after 3 write virtualmachineinstances.kubevirt.io",
)


@pytest.mark.soak
@pytest.mark.parametrize("point", POINTS)
def test_given_the_control_plane_dies_at_a_step_then_it_ends_the_same(
    back: Writing, point: str
) -> None:
    guest = back
    guest.move(boot="boot-b", hot="hot-b")
    guest.edit_and_die(point)
    guest.goes_on_after()
    guest.arrives(boot="boot-b", hot="hot-b")
    guest.goes_on()
    guest.is_whole()


@pytest.mark.long
@pytest.mark.parametrize("point", ["after 2 qmp blockdev-mirror", "after 2 qmp job-complete"])
def test_given_the_guest_dies_too_then_the_next_one_starts_from_the_claim_that_has_all(
    back: Writing, point: str
) -> None:
    guest = back
    for name in DISKS:
        guest.shell(f"echo kept > /mnt/{name}/marker; sync")
    guest.move(boot="boot-b", hot="hot-b")
    guest.edit_and_die(point)
    os.kill(guest.host.qemu(guest.name), signal.SIGKILL)
    guest.goes_on_after()
    guest.arrives(boot="boot-b", hot="hot-b")
    guest.host.answers(guest.name)
    guest.remembers()


@pytest.mark.long
def test_given_a_restart_before_it_is_copied_then_the_guest_starts_from_what_it_had(
    back: Writing,
) -> None:
    guest = back
    for name in DISKS:
        guest.shell(f"echo kept > /mnt/{name}/marker; sync")
    uid = guest.host.uid(guest.name)
    guest.move(hot="later")
    guest.apply()
    until("it waits", lambda: reason(guest) == "FailedPvcNotFound", SECONDS)
    assert guest.host.condition("vmi", guest.name, "VolumesChange")["status"] == "False"
    guest.host.run("virtctl", "restart", guest.name)
    until("another guest", lambda: guest.host.uid(guest.name) not in ("", uid))
    guest.host.answers(guest.name, guest.host.uid(guest.name))
    assert guest.on() == {"boot": "boot-a", "hot": "hot-a"}
    until("it waits again", lambda: reason(guest) == "FailedPvcNotFound", SECONDS)
    guest.host.apply(a_claim("later", SIZE))
    guest.arrives(boot="boot-a", hot="later")
    guest.remembers()


# ---------------------------------------------------------------- going elsewhere afterwards


@pytest.mark.long
def test_a_volume_that_was_copied_travels_with_its_guest_though_it_cannot_come_and_go() -> None:
    with two_nodes() as host:
        for name in ("before", "after"):
            claim = a_claim(name)
            claim["spec"]["accessModes"] = ["ReadWriteMany"]
            host.apply(claim)
        guest = MovingGuest(host, a_movable_vm("copied"))
        guest.vm["spec"]["updateVolumesStrategy"] = "Migration"
        spec, source = guest.vm["spec"]["template"]["spec"], {"claimName": "before"}
        spec["volumes"].append({"name": "data", "persistentVolumeClaim": source})
        disk = {"name": "data", "disk": {"bus": "virtio"}, "serial": "data"}
        spec["domain"]["devices"]["disks"].append(disk)
        guest.boot()
        at = f"{BY_ID}/virtio-data"
        host.shell(guest.name, f"mkfs.ext4 -q {at}; mount {at} /mnt; echo kept > /mnt/f; sync")
        source["claimName"] = "after"
        host.apply(guest.vm)

        def copied() -> bool:
            status = host.get("vmi", guest.name)["status"]
            told = {each["name"]: each for each in status["volumeStatus"]}
            info = told["data"].get("persistentVolumeClaimInfo") or {}
            return info.get("claimName") == "after" and not status.get("migratedVolumes")

        until("the copy", copied, SECONDS)
        guest.move("there")
        guest.move("back")
        guest.went_on()
        reread = f"echo more >> /mnt/f; umount /mnt; mount {at} /mnt; cat /mnt/f"
        assert host.shell(guest.name, reread).split() == ["kept", "more"]
