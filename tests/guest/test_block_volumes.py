"""Claims with `volumeMode: Block`, on loop devices of the host, and disks that want to be LUNs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from livevirt.files import loop_device

from .guest_host import IMAGE, GuestHost, Object, a_bare_vm, image_missing, running_host, until
from .hot_volumes import BY_ID, SECONDS, HotGuest, a_claim, a_data_volume, on_claim

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
    pytest.mark.skipif(bool(loop_device.problem()), reason=loop_device.problem()),
]


@pytest.fixture(scope="module")
def host() -> Iterator[GuestHost]:
    with running_host() as host:
        yield host


def a_block_claim(name: str) -> Object:
    claim = a_claim(name)
    claim["spec"]["volumeMode"] = "Block"
    return claim


def devices(host: GuestHost) -> set[str]:
    """Return the files of this host that are loop devices."""
    found = (
        each.read_text().strip() for each in Path("/sys/block").glob("loop*/loop/backing_file")
    )
    return {each for each in found if each.startswith(str(host.server.data))}


@pytest.mark.long
def test_a_block_claim_is_a_device_that_comes_grows_and_goes(host: GuestHost) -> None:
    guest = HotGuest(host)
    host.apply(a_block_claim("blocky"), a_block_claim("fixed"), a_claim("plain"))
    volume = {"name": "fixed", "persistentVolumeClaim": {"claimName": "fixed"}}
    guest.add(volume, disk={"bus": "virtio"}, serial="fixed")
    guest.apply()
    host.answers(guest.name)
    guest.add(on_claim("blocky"))
    guest.add(on_claim("plain"), disk={"bus": "virtio"})  # a file and a device together
    guest.add(on_claim("lun", "plain-lun"), lun={"bus": "scsi"})
    host.apply(a_claim("plain-lun"))
    guest.apply()
    until("both", lambda: guest.claims() == {"blocky": "blocky", "plain": "plain"}, SECONDS)
    guest.waits_for_restart(
        {"domain.devices.disks[lun]": "NotAvailable", "volumes[lun]": "NotAvailable"}
    )
    guest.sees("fixed", "blocky", "plain")
    assert guest.told()["blocky"]["persistentVolumeClaimInfo"]["volumeMode"] == "Block"
    assert devices(host) == {str(host.disk_of(name)) for name in ("blocky", "fixed")}
    guest.shell(
        f"for d in blocky fixed; do printf $d | dd of=$(echo {BY_ID}/*$d) conv=fsync; done; sync"
    )
    for claim in ("blocky", "fixed"):
        with host.disk_of(claim).open("rb") as file:
            assert file.read(len(claim)) == claim.encode()
        host.grow(claim, "24Mi")
    guest.grows_to("blocky", 24)
    asked = f"blockdev --getsize64 $(echo {BY_ID}/*fixed)"
    until("the other", lambda: guest.shell(asked) == str(24 << 20), SECONDS)
    for name in ("blocky", "lun", "plain"):
        guest.drop(name)
    guest.apply()
    until("all to go", lambda: not guest.told(), SECONDS)
    until("its device to go", lambda: devices(host) == {str(host.disk_of("fixed"))}, SECONDS)
    guest.needs_no_restart()
    host.delete(guest.name)
    until("no device", lambda: not devices(host), SECONDS)


def test_given_kills_then_a_block_claim_is_attached_and_no_device_is_left(host: GuestHost) -> None:
    host.apply(a_block_claim("early"), a_block_claim("late"))
    vm = a_bare_vm("bare")
    spec = vm["spec"]["template"]["spec"]
    spec["volumes"] += [{"name": "early", "dataVolume": {"name": "early"}}, on_claim("late")]
    host.apply(vm)
    until("a device", lambda: devices(host), SECONDS)
    host.server.kill()
    host.server.start()

    def attached() -> set[str]:
        listed = (host.get("vmi", "bare").get("status") or {}).get("volumeStatus") or ()
        return {each["name"] for each in listed if each.get("target")}

    until("both to be there", lambda: {"early", "late"} <= attached(), SECONDS)
    assert len(devices(host)) == 2
    host.delete("bare")
    until("no device", lambda: not devices(host), SECONDS)
    host.delete("early", "late", kind="pvc")


@pytest.mark.long
def test_a_lun_on_a_file_keeps_a_guest_from_starting_and_says_why(host: GuestHost) -> None:
    host.apply(a_claim("file"))
    vm = a_bare_vm("lunatic")
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["devices"]["disks"].append({"name": "file", "lun": {"bus": "scsi"}})
    spec["volumes"].append({"name": "file", "persistentVolumeClaim": {"claimName": "file"}})
    host.apply(vm)

    def waiting() -> str:
        for pod in host.pods("lunatic"):
            for each in (pod.get("status") or {}).get("containerStatuses") or ():
                return str(((each.get("state") or {}).get("waiting") or {}).get("message", ""))
        return ""

    until("the reason", lambda: "a lun is a SCSI device of the host" in waiting(), SECONDS)
    host.delete("lunatic")


@pytest.mark.long
def test_a_guest_boots_from_a_hot_block_device_and_gets_more_after_a_kill(host: GuestHost) -> None:
    source = {"registry": {"url": f"docker://{IMAGE}"}}
    root = a_data_volume("system", source, "512Mi")
    root["spec"]["storage"]["volumeMode"] = "Block"
    host.apply(root, a_block_claim("stopped"), a_block_claim("later"))
    guest = HotGuest(host, "blocks")
    guest.manifest["spec"]["runStrategy"] = "Halted"
    guest.spec["volumes"][0] = {
        "name": "root",
        "dataVolume": {"name": "system", "hotpluggable": True},
    }
    guest.apply()
    host.run("virtctl", "addvolume", guest.name, "--volume-name=stopped")
    host.run("virtctl", "start", guest.name)
    host.answers(guest.name)
    expected = {"root": "system", "stopped": "stopped"}
    until("both", lambda: guest.claims() == expected, SECONDS)
    used = f"$(echo {BY_ID}/*stopped)"
    until("the disk", lambda: "stopped" in guest.serials(), SECONDS)
    guest.shell(f"printf kept | dd of={used} conv=fsync")
    host.server.kill()
    host.server.start()
    host.found(guest.name)
    assert guest.shell(f"head -c 4 {used}") == "kept"
    host.run("virtctl", "addvolume", guest.name, "--volume-name=later", "--wait")
    until("one more", lambda: {"stopped", "later"} <= guest.serials(), SECONDS)
    assert len(devices(host)) == 3
    host.discard(guest.name)
    until("no device", lambda: not devices(host), SECONDS)
