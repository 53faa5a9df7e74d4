"""Disks that come and go: what the guest must not lose, and what QEMU makes of their options.

All of it happens to one guest, which is back at the disks it booted with before each test.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from livevirt.qemu.agent import SYNC_SECONDS
from livevirt.qemu.disk import own_thread
from livevirt.qemu.session import Session

from .guest_host import IMAGE, GuestHost, a_bare_vm, image_missing, running_host, until
from .hot_volumes import BY_ID, SECONDS, HotGuest, a_claim, a_disc, on_claim

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

CLAIMS = ("alpha", "beta", "gamma", "delta")
MOUNTED = f"mkfs.ext4 -q {BY_ID}/*alpha; mkdir -p /mnt/a; mount {BY_ID}/*alpha /mnt/a"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestHost]:
    with running_host() as host:
        disc = a_disc(tmp_path_factory.mktemp("discs"), "red")
        filling = ("--pvc", "red", "--data-dir", str(host.server.data))
        host.run("livevirt", "volume", "import", str(disc), *filling)
        host.apply(*(a_claim(name) for name in CLAIMS))
        yield host


@pytest.fixture(scope="module")
def booted(host: GuestHost) -> HotGuest:
    guest = HotGuest(host)
    guest.apply()
    host.answers(guest.name)
    return guest


@pytest.fixture
def guest(booted: HotGuest) -> HotGuest:
    booted.reset()
    return booted


def with_a_mounted_disk(guest: HotGuest) -> None:
    guest.add(on_claim("alpha"), disk={"bus": "scsi"})
    guest.apply()
    guest.settles()
    guest.sees("alpha")
    guest.shell(MOUNTED)


def in_background(guest: HotGuest, script: str) -> None:
    """Have the guest run a script by itself, after the answer has come through the agent."""
    guest.shell(f"setsid sh -c 'sleep 3; {script}' > /dev/null 2>&1 < /dev/null &")


def restart_server(guest: HotGuest) -> None:
    guest.host.server.kill()
    guest.host.server.start()


def still_has_its_disk(guest: HotGuest) -> None:
    assert guest.shell("echo kept > /mnt/a/file && sync && cat /mnt/a/file") == "kept"
    guest.shell("umount /mnt/a")
    guest.settles()
    guest.sees(*guest.wanted())


# ------------------------------------------------------------ what the guest still uses


def test_given_a_paused_guest_and_a_killed_server_then_a_mounted_disk_waits(
    guest: HotGuest,
) -> None:
    with_a_mounted_disk(guest)
    guest.host.run("virtctl", "pause", "vm", guest.name)
    try:
        restart_server(guest)
        guest.drop("alpha")
        guest.apply()
        guest.waits("alpha", "Detaching", "GuestAgentNotAnswering", "the guest is paused")
        time.sleep(SYNC_SECONDS + 2)  # after which the new server knows that nobody answers
        guest.waits("alpha", "Detaching", "GuestAgentNotAnswering", "the guest is paused")
    finally:
        guest.host.run("virtctl", "unpause", "vm", guest.name)
    guest.waits("alpha", "Detaching", "InUseByGuest", "mounted at /mnt/a")
    still_has_its_disk(guest)


def test_given_a_hung_agent_and_a_killed_server_then_a_mounted_disk_waits(
    guest: HotGuest,
) -> None:
    with_a_mounted_disk(guest)
    in_background(
        guest,
        "agent=$(pidof qemu-ga); kill -STOP $agent;"
        f" until [ -e {BY_ID}/scsi-0QEMU_QEMU_HARDDISK_beta ]; do sleep 1; done; kill -CONT $agent",
    )
    asked = ("livevirt", "exec", guest.name, "--", "true")
    until("a hung agent", lambda: guest.host.attempt(*asked).returncode != 0, SECONDS)
    restart_server(guest)
    guest.drop("alpha")
    guest.apply()
    guest.waits("alpha", "Detaching", "GuestAgentNotAnswering", "does not report")
    time.sleep(SYNC_SECONDS + 2)  # after which the new server knows that nobody answers
    guest.waits("alpha", "Detaching", "GuestAgentNotAnswering", "does not report")
    guest.add(on_claim("beta"))  # for which the guest wakes its agent
    guest.apply()
    guest.waits("alpha", "Detaching", "InUseByGuest", "mounted at /mnt/a")
    guest.host.found(guest.name)
    still_has_its_disk(guest)


@pytest.mark.soak  # fails now and then: the status does not show that the agent has gone
def test_given_the_agent_and_the_server_are_restarted_then_a_mounted_disk_waits(
    guest: HotGuest,
) -> None:
    with_a_mounted_disk(guest)
    guest.drop("alpha")
    guest.apply()
    guest.waits("alpha", "Detaching", "InUseByGuest", "mounted at /mnt/a")
    in_background(
        guest,
        "loop=$(pgrep -f lib/guest/[a]gent); kill -STOP $loop; kill $(pidof qemu-ga);"
        f" until [ -e {BY_ID}/scsi-0QEMU_QEMU_HARDDISK_beta ]; do sleep 1; done; kill -CONT $loop",
    )
    guest.waits("alpha", "Detaching", "GuestAgentNotAnswering", "the guest agent last answered")
    restart_server(guest)
    guest.add(on_claim("beta"))  # for which the guest starts its agent
    guest.apply()
    guest.waits("alpha", "Detaching", "InUseByGuest", "mounted at /mnt/a")
    guest.host.found(guest.name)
    still_has_its_disk(guest)


def test_given_no_agent_then_a_scsi_disk_goes_at_once(guest: HotGuest) -> None:
    with_a_mounted_disk(guest)
    device = guest.shell(f"readlink -f {BY_ID}/*alpha").rpartition("/")[2]
    in_background(
        guest,
        "loop=$(pgrep -f lib/guest/[a]gent); kill -STOP $loop; kill $(pidof qemu-ga);"
        f" while [ -e /sys/block/{device} ]; do sleep 1; done; kill -CONT $loop",
    )
    gone = lambda: not guest.host.holds("vmi", guest.name, "AgentConnected")  # noqa: E731
    until("the agent to go", gone, SECONDS)
    guest.drop("alpha")
    guest.apply()
    guest.settles()
    guest.host.answers(guest.name)  # which the guest starts again once the disk is gone
    guest.shell("umount -l /mnt/a")
    guest.sees()
    guest.nothing_leaks()


def test_given_a_locked_tray_then_the_disc_goes_once_it_is_unmounted(guest: HotGuest) -> None:
    guest.spec["volumes"].append(on_claim("cd", "red"))
    guest.apply()
    guest.settles()
    assert guest.disc() == "this is red"
    guest.shell("mkdir -p /mnt/c; mount -r /dev/sr0 /mnt/c")
    guest.take_out("cd")
    guest.apply()
    guest.waits("cd", "Detaching", "InUseByGuest", "tray locked", "mounted at /mnt/c")
    assert guest.shell("cat /mnt/c/text") == "this is red"
    guest.shell("umount /mnt/c")
    guest.settles()
    assert guest.disc() == ""
    guest.nothing_leaks()


# ------------------------------------------------------------ a disk that fails


def test_a_disk_with_no_room_left_is_named_and_can_go_before_the_guest_runs_on(
    guest: HotGuest,
) -> None:
    guest.add(on_claim("alpha"), disk={"bus": "scsi"})
    guest.apply()
    guest.settles()  # its image is made at its first use
    guest.reset()
    with little_room(guest.host.disk_of("alpha")):
        guest.add(on_claim("alpha"), disk={"bus": "scsi"})
        guest.apply()
        guest.settles()
        guest.sees("alpha")
        writes = f"dd if=/dev/zero of=$(echo {BY_ID}/*alpha) bs=1M oflag=direct; touch /run/tried"
        in_background(guest, writes)
        paused = lambda: guest.host.condition("vmi", guest.name, "Paused")  # noqa: E731
        until("the guest to stop", lambda: paused().get("reason") == "PausedIOError", SECONDS)
        assert "no space is left for disk alpha" in paused()["message"]
        guest.drop("alpha")
        guest.apply()
        guest.waits("alpha", "Detaching", "GuestAgentNotAnswering", "stopped by a disk that failed")
        guest.force("alpha")
        guest.settles()
        guest.host.run("virtctl", "unpause", "vm", guest.name)
        until("dd to end", lambda: guest.shell("ls /run").find("tried") >= 0, SECONDS)
        guest.sees()
        guest.nothing_leaks()


@contextlib.contextmanager
def little_room(image: Path) -> Iterator[None]:
    """Put an empty image in the place of one, where it finds room for 4 MiB."""
    was, folder = image.stat(), str(image.parent)
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "tmpfs", folder]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting a tmpfs needs root: {done.stderr.strip()}")
    try:
        with image.open("wb") as file:
            file.truncate(was.st_size)
        image.chmod(was.st_mode & 0o777)
        os.chown(image, was.st_uid, was.st_gid)
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


# ------------------------------------------------------------ from one to another


@pytest.mark.parametrize("bus", ["scsi", "virtio"])
def test_a_claim_goes_to_another_name_in_one_edit_without_a_warning(
    guest: HotGuest, bus: str
) -> None:
    before = guest.host.warnings(guest.name)
    guest.add(on_claim("one", "alpha"), disk={"bus": "scsi"})
    guest.apply()
    guest.settles()
    guest.sees("one")
    guest.shell(f"printf kept | dd of=$(echo {BY_ID}/*one) conv=fsync 2>/dev/null")
    guest.drop("one")
    guest.add(on_claim(f"on-{bus}", "alpha"), disk={"bus": bus})
    guest.apply()
    guest.settles()
    guest.sees(f"on-{bus}")
    assert guest.shell(f"head -c 4 {BY_ID}/*on-{bus}") == "kept"
    guest.nothing_leaks()
    assert guest.host.warnings(guest.name) == before


def test_given_another_guest_has_the_claim_then_a_guest_starts_without_and_gets_it_later(
    host: GuestHost,
) -> None:
    def stands(name: str, phase: str, reason: str) -> None:
        def found() -> bool:
            listed = (host.get("vmi", name).get("status") or {}).get("volumeStatus") or ()
            return (phase, reason) in [(e.get("phase"), e.get("reason")) for e in listed]

        until(f"{name} to be {phase}, {reason}", found, SECONDS)

    def start(name: str) -> None:
        vm = a_bare_vm(name)
        vm["spec"]["template"]["spec"]["volumes"].append(on_claim("data", "wanted"))
        host.apply(vm)
        until(f"{name} to run", lambda: host.phase(name) == "Running", SECONDS)

    host.apply(a_claim("wanted"))
    start("first")
    stands("first", "Ready", "VolumeReady")
    start("second")
    stands("second", "Pending", "ClaimInUse")
    before = host.uid("second")
    host.delete("first")
    stands("second", "Ready", "VolumeReady")
    assert host.uid("second") == before, "it has started once"
    host.discard("second")


# ------------------------------------------------------------ options


def test_a_claim_that_is_only_read_from_now_on_comes_back_so_once_it_is_unmounted(
    guest: HotGuest,
) -> None:
    with_a_mounted_disk(guest)
    ask_ro = f"cat /sys/block/$(basename $(readlink -f {BY_ID}/*alpha))/ro"
    assert guest.shell(ask_ro) == "0"
    guest.spec["volumes"][-1]["persistentVolumeClaim"]["readOnly"] = True
    guest.apply()
    guest.waits("alpha", "Detaching", "InUseByGuest", "mounted at /mnt/a")
    guest.needs_no_restart()
    assert guest.shell("echo kept > /mnt/a/file && sync && cat /mnt/a/file") == "kept"
    guest.shell("umount /mnt/a")
    guest.settles()
    guest.sees("alpha")
    assert guest.shell(ask_ro) == "1"
    guest.shell(f"mount -r {BY_ID}/*alpha /mnt/a")
    assert guest.shell("cat /mnt/a/file; umount /mnt/a") == "kept"
    guest.nothing_leaks()


def test_given_other_settings_for_a_mounted_disk_then_it_has_them_once_it_is_unmounted(
    guest: HotGuest,
) -> None:
    with_a_mounted_disk(guest)
    guest.drop("alpha")
    guest.apply()
    guest.waits("alpha", "Detaching", "InUseByGuest", "mounted at /mnt/a")
    guest.add(on_claim("alpha"), disk={"bus": "scsi"}, serial="another")
    guest.apply()
    rolled_out = lambda: bool(guest.host.get("vmi", guest.name)["spec"]["volumes"][1:])  # noqa: E731
    until("the instance to ask for it", rolled_out, SECONDS)
    guest.waits("alpha", "Detaching", "InUseByGuest", "mounted at /mnt/a")
    restart_server(guest)
    guest.host.found(guest.name)
    guest.waits("alpha", "Detaching", "InUseByGuest", "mounted at /mnt/a")
    guest.sees("alpha")
    guest.shell("umount /mnt/a")
    guest.settles()
    guest.sees("another")
    guest.nothing_leaks()


def test_given_a_hot_disk_with_a_boot_order_then_it_is_tried_and_those_without_are_not(
    guest: HotGuest,
) -> None:
    def order() -> Any:
        return ask(guest, lambda qmp: properties(qmp, ["ua-root", "ua-alpha"], ("bootindex",)))

    (taken,) = ask(guest, lambda qmp: properties(qmp, ["ua-root"], ("bootindex",)))["ua-root"]
    guest.add(on_claim("alpha"), disk={"bus": "scsi"}, bootOrder=taken)
    guest.apply()
    guest.settles()
    guest.sees("alpha")
    until("the order", lambda: order() == {"ua-root": (-1,), "ua-alpha": (taken,)}, SECONDS)


def test_the_options_of_a_hot_disk_are_those_that_qemu_has(guest: HotGuest) -> None:
    guest.add(
        on_claim("alpha"), disk={"bus": "scsi"}, cache="writeback", errorPolicy="report",
        bootOrder=7,
    )  # fmt: skip
    guest.add(on_claim("beta"), disk={"bus": "virtio"}, dedicatedIOThread=True)
    guest.add(on_claim("gamma"), disk={"bus": "scsi"}, cache="none", shareable=True)
    guest.add(on_claim("delta"), disk={"bus": "scsi"}, cache="writethrough", errorPolicy="enospace")
    guest.apply()
    guest.settles()
    guest.sees(*CLAIMS)
    names = ("werror", "rerror", "bootindex", "share-rw", "write-cache")
    found = ask(guest, lambda qmp: properties(qmp, [f"ua-{each}" for each in CLAIMS], names))
    assert found == {
        "ua-alpha": ("report", "report", 7, False, "on"),
        "ua-beta": ("stop", "stop", -1, False, "on"),
        "ua-gamma": ("stop", "stop", -1, True, "on"),
        "ua-delta": ("enospc", "auto", -1, False, "off"),
    }
    direct = {id: cache["direct"] for id, cache in ask(guest, caches).items() if id in found}
    assert direct == dict.fromkeys(found, False) | {
        "ua-beta": direct["ua-beta"],  # where the host's file system can
        "ua-gamma": True,
    }
    assert ask(guest, threads) == {own_thread("ua-beta")}
    served = ask(guest, lambda qmp: properties(qmp, ["ua-beta"], ("iothread",)))
    assert served == {"ua-beta": (f"/objects/{own_thread('ua-beta')}",)}
    guest.drop("beta")
    guest.apply()
    guest.settles()
    guest.sees("alpha", "gamma", "delta")
    until("its thread to end", lambda: ask(guest, threads) == set(), SECONDS)


def test_native_io_of_a_hot_disk_is_the_kernel_s(guest: HotGuest) -> None:
    maps = Path(f"/proc/{guest.host.qemu(guest.name)}/maps")
    assert "/[aio]" not in maps.read_text()
    guest.add(on_claim("alpha"), disk={"bus": "scsi"}, cache="none", io="native")
    guest.apply()
    guest.settles()
    guest.sees("alpha")
    guest.shell(f"printf native | dd of=$(echo {BY_ID}/*alpha) conv=fsync 2>/dev/null")
    until("QEMU to use it", lambda: "/[aio]" in maps.read_text(), SECONDS)


def ask(guest: HotGuest, question: Callable[[Session], Awaitable[Any]]) -> Any:
    """Ask QEMU, which answers one at a time: the server is killed for as long as that takes."""
    line = Path(f"/proc/{guest.host.qemu(guest.name)}/cmdline").read_bytes().decode()
    (path,) = set(re.findall(r"[^=,\0]+/qmp\.sock", line))
    guest.host.server.kill()

    async def asked() -> Any:
        async with asyncio.timeout(30), await Session.connect(path) as qmp:
            return await question(qmp)

    try:
        return asyncio.run(asked())
    finally:
        guest.host.server.start()
        guest.host.found(guest.name)


async def properties(qmp: Session, ids: list[str], names: tuple[str, ...]) -> dict[str, Any]:
    async def asked(id: str, name: str) -> Any:
        path = f"/machine/peripheral/{id}"
        return await qmp.execute("qom-get", {"path": path, "property": name})

    return {id: tuple([await asked(id, name) for name in names]) for id in ids}


async def caches(qmp: Session) -> dict[str, Any]:
    """Return how each drive's image is cached."""
    return {
        each["qdev"].removeprefix("/machine/peripheral/").partition("/")[0]: (
            each["inserted"]["cache"]
        )
        for each in await qmp.execute("query-block")
        if "inserted" in each
    }


async def threads(qmp: Session) -> set[str]:
    return {each["id"] for each in await qmp.execute("query-iothreads")}
