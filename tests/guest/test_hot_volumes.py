"""Disks and discs of a running guest that come and go by an edit of its VM, seen from inside.

Nearly all of it happens to one guest, which is back at the disks it booted with before each test.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .guest_host import IMAGE, GuestHost, a_bare_vm, image_missing, running_host, until
from .hot_volumes import BY_ID, SECONDS, HotGuest, a_claim, a_data_volume, a_disc, on_claim
from .web_site import serving

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

CLAIMS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
DISCS = ("red", "blue")
STORM_EDITS, EVERY, CALM_SECONDS = 40, 0.05, 30.0
MANY = 75


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestHost]:
    folder: Path = tmp_path_factory.mktemp("discs")
    with running_host() as host:
        for label in DISCS:
            filling = ("--pvc", label, "--data-dir", str(host.server.data))
            host.run("livevirt", "volume", "import", str(a_disc(folder, label)), *filling)
        host.apply(*(a_claim(name) for name in CLAIMS))
        yield host


@pytest.fixture(scope="module")
def booted(host: GuestHost) -> HotGuest:
    guest = HotGuest(host)
    guest.apply()
    host.answers(guest.name)
    guest.shell("modprobe usb-storage")  # it comes late to what is on USB from the start
    until("both drives", lambda: guest.drives() == {"sr0", "sr1"}, SECONDS)
    return guest


@pytest.fixture
def guest(booted: HotGuest) -> HotGuest:
    booted.reset()
    return booted


# ------------------------------------------------------------ the four edits of the requirement


def test_a_disk_is_added_written_read_and_removed_by_plain_edits(guest: HotGuest) -> None:
    guest.host.apply(a_data_volume("blank", {"blank": {}}, "16Mi"))
    guest.add(
        {"name": "plugged", "dataVolume": {"name": "blank", "hotpluggable": True}},
        disk={"bus": "scsi"},
    )
    guest.apply()
    guest.settles()
    guest.sees("plugged")
    device = f"{BY_ID}/scsi-0QEMU_QEMU_HARDDISK_plugged"
    written = guest.shell(
        f"mkfs.ext4 -q {device} && mkdir -p /mnt/p && mount {device} /mnt/p && echo kept > /mnt/p/f"
        f" && umount /mnt/p && mount {device} /mnt/p && cat /mnt/p/f; umount /mnt/p"
    )
    assert written == "kept"
    entry = guest.told()["plugged"]
    assert (entry["reason"], entry["target"], entry["size"]) == ("VolumeReady", "sdc", 16 << 20)
    assert entry["persistentVolumeClaimInfo"]["capacity"] == {"storage": "16Mi"}
    guest.is_as_written()
    guest.nothing_leaks()

    guest.drop("plugged")
    guest.apply()
    guest.settles()
    guest.sees()
    guest.is_as_written()
    guest.nothing_leaks()
    guest.needs_no_restart()
    with guest.host.disk_of("blank").open("rb") as file:
        assert b"kept" in file.read()
    told = {
        ("VolumeReady", "Successfully attach hotplugged volume plugged to VM"),
        ("VolumeUnMountedFromPod", "Volume plugged has been unmounted from virt-launcher pod"),
    }
    until("the events", lambda: told <= guest.host.events(guest.name), SECONDS)


@pytest.mark.parametrize(
    ("name", "device"), [("cd", "sr0"), pytest.param("stick", "sr1", marks=pytest.mark.long)]
)
def test_a_disc_is_injected_swapped_and_ejected_by_plain_edits(
    guest: HotGuest, name: str, device: str
) -> None:
    assert guest.disc(device) == ""
    for label in ("red", "blue", ""):
        guest.take_out(name)
        if label:
            guest.spec["volumes"].insert(0, on_claim(name, label))
        guest.apply()
        guest.settles()
        assert guest.disc(device) == (f"this is {label}" if label else "")
        guest.is_as_written()
        guest.nothing_leaks()
    guest.needs_no_restart()


# ------------------------------------------------------------ drives and buses


@pytest.mark.long
@pytest.mark.parametrize("bus", ["scsi", "usb"])
def test_a_drive_itself_comes_and_goes_on_a_bus_that_allows_it(guest: HotGuest, bus: str) -> None:
    guest.add(on_claim("drive", "red"), cdrom={"bus": bus})
    guest.apply()
    guest.settles()
    until("the drive", lambda: guest.drives() == {"sr0", "sr1", "sr2"}, SECONDS)
    assert guest.disc("sr2") == "this is red"
    guest.drop("drive")
    guest.apply()
    guest.settles()
    until("no drive", lambda: guest.drives() == {"sr0", "sr1"}, SECONDS)
    guest.needs_no_restart()
    guest.nothing_leaks()


@pytest.mark.long
def test_a_drive_on_sata_waits_for_a_restart_and_the_rest_of_the_edit_does_not(
    guest: HotGuest,
) -> None:
    guest.add(on_claim("late", "red"), cdrom={"bus": "sata"})
    guest.add(on_claim("alpha"))
    guest.apply()
    until("the disk", lambda: guest.claims() == {"alpha": "alpha"}, SECONDS)
    guest.waits_for_restart(
        {
            "domain.devices.disks[late]": "DriveNotHotpluggable",
            "volumes[late]": "DriveNotHotpluggable",
        }
    )


@pytest.mark.long
def test_given_a_sata_drive_is_removed_then_its_disc_goes_at_once(guest: HotGuest) -> None:
    guest.spec["volumes"].append(on_claim("cd", "red"))
    guest.apply()
    guest.settles()
    guest.drop("cd")
    guest.apply()
    guest.settles()
    assert guest.disc() == ""
    guest.waits_for_restart({"domain.devices.disks[cd]": "DriveNotHotpluggable"})


@pytest.mark.long
def test_virtio_disks_take_ports_and_one_too_many_waits_for_one(guest: HotGuest) -> None:
    free = 3
    until("free ports", lambda: guest.status()["freePCIePorts"] == free, SECONDS)
    for name in CLAIMS[: free + 1]:
        guest.add(on_claim(name), disk={"bus": "virtio"})
    guest.add(on_claim("zeta"), disk={"bus": "scsi"})
    guest.apply()
    guest.waits(CLAIMS[free], "Pending", "CannotAttach", "no PCIe port is free")
    guest.sees(*CLAIMS[:free], "zeta")
    until("no free port", lambda: guest.status()["freePCIePorts"] == 0, SECONDS)
    guest.drop(CLAIMS[0])
    guest.apply()
    guest.settles()
    guest.sees(*CLAIMS[1 : free + 1], "zeta")


@pytest.mark.long
def test_the_next_disk_takes_the_letter_that_became_free(guest: HotGuest) -> None:
    for name in CLAIMS[:4]:
        guest.add(on_claim(name))
    guest.apply()
    guest.settles()
    letters = {name: guest.told()[name]["target"] for name in CLAIMS[:4]}
    assert list(letters.values()) == ["sdc", "sdd", "sde", "sdf"]
    guest.drop("gamma")
    guest.apply()
    guest.settles()
    guest.add(on_claim("epsilon"))
    guest.apply()
    guest.settles()
    guest.add(on_claim("gamma"))
    guest.apply()
    guest.settles()
    now = {name: each["target"] for name, each in guest.told().items()}
    assert now == letters | {"epsilon": "sde", "gamma": "sdg"}


# ------------------------------------------------------------ what the guest still uses


@pytest.mark.parametrize("bus", ["scsi", pytest.param("virtio", marks=pytest.mark.long)])
def test_given_a_disk_is_mounted_then_it_waits_until_it_is_not(guest: HotGuest, bus: str) -> None:
    guest.add(on_claim("alpha"), disk={"bus": bus})
    guest.add(on_claim("beta"))
    guest.apply()
    guest.settles()
    guest.sees("alpha", "beta")
    guest.shell(f"mkfs.ext4 -q {BY_ID}/*alpha; mkdir -p /mnt/a; mount {BY_ID}/*alpha /mnt/a")
    guest.drop("alpha")
    guest.drop("beta")
    guest.apply()
    guest.waits("alpha", "Detaching", "InUseByGuest", "mounted at /mnt/a")
    until("the other one to go", lambda: set(guest.told()) == {"alpha"}, SECONDS)
    guest.host.server.kubectl("delete", "pvc", "alpha", "--wait=false")
    guest.shell("echo still there > /mnt/a/file; sync; cat /mnt/a/file")
    assert guest.host.get("pvc", "alpha")["metadata"]["deletionTimestamp"]
    guest.shell("umount /mnt/a")
    guest.settles()
    guest.sees()
    guest.nothing_leaks()
    until("the claim to go", lambda: not guest.host.get("pvc", "alpha"), SECONDS)
    guest.host.apply(a_claim("alpha"))


@pytest.mark.long
def test_given_force_then_a_mounted_disk_and_a_locked_disc_go(guest: HotGuest) -> None:
    guest.add(on_claim("alpha"))
    guest.spec["volumes"].append(on_claim("cd", "red"))
    guest.apply()
    guest.settles()
    guest.sees("alpha")
    guest.disc()
    guest.shell(
        f"mkfs.ext4 -q {BY_ID}/*alpha; mkdir -p /mnt/a /mnt/c; mount {BY_ID}/*alpha /mnt/a;"
        " mount -r /dev/sr0 /mnt/c"
    )
    guest.drop("alpha")
    guest.take_out("cd")
    guest.spec["volumes"].append(on_claim("cd", "blue"))
    guest.apply()
    guest.waits("alpha", "Detaching", "InUseByGuest", "mounted at /mnt/a")
    guest.waits("cd", "Detaching", "InUseByGuest", "tray locked", "mounted at /mnt/c")
    assert guest.told()["cd"]["persistentVolumeClaimInfo"]["claimName"] == "red"
    guest.force("alpha,cd")
    guest.settles()
    guest.sees()
    until("force to be taken back", lambda: not guest.forced(), SECONDS)
    guest.shell("umount -l /mnt/a; umount -l /mnt/c")
    assert guest.disc() == "this is blue"
    guest.nothing_leaks()


# ------------------------------------------------------------ what is not ready


def test_one_bad_claim_does_not_stall_another_and_follows_once_it_is_there(
    guest: HotGuest,
) -> None:
    guest.host.apply(a_data_volume("huge", {"registry": {"url": f"docker://{IMAGE}"}}, "1Mi"))
    guest.add(on_claim("absent"))
    guest.add(on_claim("beta"))
    guest.add({"name": "huge", "dataVolume": {"name": "huge", "hotpluggable": True}})
    guest.apply()
    guest.waits("absent", "Pending", "FailedPvcNotFound", "PVC absent not found")
    guest.waits("huge", "Pending", "DataVolumeFailed", "a larger claim is needed")
    until("the good one", lambda: guest.claims() == {"beta": "beta"}, SECONDS)
    guest.sees("beta")
    guest.drop("huge")
    guest.apply()
    guest.host.apply(a_claim("absent"))
    guest.settles()
    guest.sees("absent", "beta")
    guest.reset()
    guest.host.delete("absent", kind="pvc")


@pytest.mark.long
def test_a_claim_of_another_guest_is_waited_for(guest: HotGuest) -> None:
    other = a_bare_vm("other")
    other["spec"]["template"]["spec"]["domain"]["devices"]["disks"].append(
        {"name": "data", "disk": {"bus": "virtio"}}
    )
    other["spec"]["template"]["spec"]["volumes"].append(
        {"name": "data", "persistentVolumeClaim": {"claimName": "alpha"}}
    )
    guest.host.apply(other)
    until("the other guest", lambda: guest.host.phase("other") == "Running", SECONDS)
    guest.add(on_claim("alpha"))
    guest.apply()
    guest.waits("alpha", "Pending", "ClaimInUse", "PVC alpha is in use by VMI other")
    guest.host.delete("other")
    guest.settles()
    guest.sees("alpha")


@pytest.mark.long
def test_given_a_claim_is_missing_then_the_guest_starts_without_and_gets_it_later(
    host: GuestHost,
) -> None:
    vm = a_bare_vm("early")
    vm["spec"]["template"]["spec"]["volumes"].append(on_claim("later"))
    host.apply(vm)
    until("the guest", lambda: host.phase("early") == "Running", SECONDS)

    def phase() -> str:
        listed = host.get("vmi", "early")["status"].get("volumeStatus") or ()
        return next((each["phase"] for each in listed if each["name"] == "later"), "")

    until("it waits", lambda: phase() == "Pending", SECONDS)
    host.apply(a_claim("later"))
    until("it is attached", lambda: phase() == "Ready", SECONDS)
    host.delete("early")


@pytest.mark.long
def test_given_the_guest_has_not_booted_yet_then_disks_come_and_go(host: GuestHost) -> None:
    guest = HotGuest(host, "booting")
    host.apply(*(a_claim(name) for name in ("dawn", "noon", "dusk")))
    guest.apply()
    until("it to run", lambda: host.phase(guest.name) == "Running", SECONDS)
    guest.add(on_claim("dawn"), disk={"bus": "scsi"})
    guest.add(on_claim("noon"), disk={"bus": "virtio"})
    guest.add(on_claim("dusk"), disk={"bus": "scsi"})
    guest.patch()
    guest.settles()
    guest.drop("dusk")
    guest.patch()
    guest.settles()
    host.answers(guest.name)
    guest.sees("dawn", "noon")
    for name in ("dawn", "noon"):
        guest.drop(name)
    guest.patch()
    guest.settles()
    guest.sees()
    guest.nothing_leaks()
    host.delete(guest.name)


@pytest.mark.long
def test_three_new_data_volumes_come_are_used_and_go(guest: HotGuest) -> None:
    (storage,) = guest.host.read("apis/storage.k8s.io/v1/storageclasses")["items"]
    assert storage["volumeBindingMode"] == "WaitForFirstConsumer"
    names = ("one", "two", "three")
    guest.host.apply(*(a_data_volume(name, {"blank": {}}, "16Mi") for name in names))
    for name in names:
        guest.add({"name": name, "dataVolume": {"name": name, "hotpluggable": True}})
    guest.apply()
    guest.settles()
    guest.sees(*names)
    device = f"{BY_ID}/scsi-0QEMU_QEMU_HARDDISK_$d"
    used = guest.shell(
        f"for d in {' '.join(names)}; do printf $d | dd of={device} conv=fsync 2>/dev/null;"
        f" head -c ${{#d}} {device}; echo; done"
    )
    assert used.split() == list(names)
    guest.reset()
    guest.sees()
    guest.host.delete(*names, kind="dv")


@pytest.mark.long
def test_an_import_tells_how_far_it_is_and_the_disk_comes_when_it_is_done(guest: HotGuest) -> None:
    content = b"fetched".ljust(8 << 20, b"\0")
    with serving({"/half.raw": content}) as site:
        site.go_on.clear()  # after the first half
        source = {"http": {"url": f"{site.url}/half.raw"}}
        guest.host.apply(a_data_volume("half", source, "16Mi"))
        guest.add({"name": "half", "dataVolume": {"name": "half", "hotpluggable": True}})
        guest.apply()

        started = "DataVolume half is in phase ImportInProgress, "

        def percent() -> float:
            entry = guest.told().get("half") or {"phase": "", "message": ""}
            done = entry["message"].removeprefix(started).removesuffix("% done")
            return float(done) if entry["phase"] == "Pending" and done[:1].isdigit() else 0.0

        until("half of it", lambda: 0 < percent() < 100, SECONDS)
        site.go_on.set()
        guest.settles()
    guest.sees("half")
    assert guest.shell(f"head -c 7 $(echo {BY_ID}/*half)") == "fetched"
    guest.reset()
    guest.host.delete("half", kind="dv")


# ------------------------------------------------------------ growth


def test_given_a_claim_grows_then_the_disk_does_in_the_running_guest(guest: HotGuest) -> None:
    guest.add(on_claim("gamma"), disk={"bus": "scsi"})
    guest.add(on_claim("delta"), disk={"bus": "virtio"})
    guest.apply()
    guest.settles()
    guest.sees("gamma", "delta")
    guest.shell(f"for d in gamma delta; do printf $d | dd of=$(echo {BY_ID}/*$d) conv=fsync; done")

    for size, kills in ((24, False), (40, True)):
        for claim in ("gamma", "delta"):
            guest.host.grow(claim, f"{size}Mi")
        if kills:
            guest.host.server.kill()
            guest.host.server.start()
            guest.host.found(guest.name)
        for claim in ("gamma", "delta"):
            guest.grows_to(claim, size)
    done = guest.host.server.run_kubectl("patch", "pvc", "gamma", "-p", GuestHost.request("1Mi"))
    assert "can not be less than status.capacity" in done.stderr
    guest.needs_no_restart()


# ------------------------------------------------------------ gates, strategy, other fields


@pytest.mark.long
def test_given_the_gate_is_closed_then_it_waits_and_opening_it_attaches(guest: HotGuest) -> None:
    kubevirt = ("kubevirt", "kubevirt", "-n", "kubevirt")
    found = guest.host.server.kubectl("get", *kubevirt, "-o", "json")
    developer = json.loads(found)["spec"]["configuration"]["developerConfiguration"]
    gates = developer["featureGates"]

    def set_gates(wanted: list[str], strategy: str) -> None:
        settings = {"developerConfiguration": {"featureGates": wanted}}
        patch = {"spec": {"configuration": settings | {"vmRolloutStrategy": strategy}}}
        guest.host.server.kubectl("patch", *kubevirt, "--type=merge", "-p", json.dumps(patch))

    guest.add(on_claim("alpha"))
    guest.apply()
    guest.settles()
    set_gates([gate for gate in gates if gate != "HotplugVolumes"], "Stage")
    try:
        guest.add(on_claim("beta"))
        guest.apply()
        until("it waits", lambda: set(guest.pending().values()) == {"FeatureGateMissing"}, SECONDS)
        assert guest.claims() == {"alpha": "alpha"}  # what is attached stays
        set_gates(gates, "Stage")
        guest.settles()
        guest.sees("alpha", "beta")
        until("nothing waits", lambda: not guest.pending(), SECONDS)
    finally:
        set_gates(gates, "LiveUpdate")


@pytest.mark.long
def test_given_another_field_needs_a_restart_then_the_volume_comes_all_the_same(
    guest: HotGuest,
) -> None:
    guest.spec["hostname"] = "other"
    guest.add(on_claim("alpha"))
    guest.apply()
    guest.settles()
    guest.waits_for_restart({"hostname": "NotLiveUpdatable"})
    guest.add(on_claim("beta"))
    guest.apply()
    guest.settles()
    guest.sees("alpha", "beta")


# ------------------------------------------------------------ in quick succession


@pytest.mark.long
def test_given_the_name_gets_another_claim_then_the_disk_is_replaced(guest: HotGuest) -> None:
    for number, claim in enumerate(("alpha", "beta", "alpha")):
        guest.take_out("data")
        if number == 0:
            guest.devices["disks"].append({"name": "data", "disk": {"bus": "scsi"}})
        guest.spec["volumes"].append(on_claim("data", claim))
        guest.apply()
        guest.settles()
        device = f"{BY_ID}/scsi-0QEMU_QEMU_HARDDISK_data"
        guest.sees("data")
        if claim == "alpha" and number:
            assert guest.shell(f"head -c 5 {device}") == "alpha"
        else:
            guest.shell(f"printf {claim} | dd of={device} conv=fsync,notrunc 2>/dev/null")
        guest.nothing_leaks()


def test_given_a_storm_of_edits_then_the_last_one_wins(guest: HotGuest) -> None:
    chance, last = random.Random(6), copy.deepcopy(guest.manifest)
    for _ in range(STORM_EDITS):
        guest.manifest = copy.deepcopy(guest.start)
        for name in chance.sample(CLAIMS[:4], 2):
            guest.add(on_claim(name, chance.choice((name, "epsilon", "zeta"))))
        names = list(guest.wanted().values())
        if len(set(names)) < len(names):
            continue
        if chance.random() < 0.5:
            guest.spec["volumes"].append(on_claim("cd", chance.choice(DISCS)))
        last = copy.deepcopy(guest.manifest)
        guest.patch()
        time.sleep(EVERY)  # the pace is the test
    guest.manifest = last
    took = guest.settles()
    print(f"calm after {took:.2f} s")
    assert took < CALM_SECONDS
    guest.sees(*(name for name in guest.wanted() if name != "cd"))
    guest.nothing_leaks()


@pytest.mark.long
def test_given_the_control_plane_is_killed_meanwhile_then_it_ends_the_same(
    guest: HotGuest,
) -> None:
    sets = [("alpha", "beta", "gamma"), ("beta", "delta"), ("alpha", "beta", "epsilon", "zeta")]
    for number, (names, pause) in enumerate(zip(sets, (0.0, 0.1, 0.3), strict=True)):
        guest.manifest = copy.deepcopy(guest.start)
        for name in names:
            guest.add(on_claim(name))
        guest.spec["volumes"].append(on_claim("cd", DISCS[number % 2]))
        guest.patch()
        time.sleep(pause)  # to die at another step each time
        guest.host.server.kill()
        guest.host.server.start()
        guest.settles()
        guest.host.found(guest.name)
        guest.sees(*names)
        guest.nothing_leaks()
    guest.needs_no_restart()


@pytest.mark.soak
def test_seventy_five_volumes_in_one_edit(guest: HotGuest) -> None:
    names = [f"many-{number}" for number in range(MANY)]
    guest.host.apply(*(a_claim(name, "1Mi") for name in names))
    for name in names:
        guest.add(on_claim(name))
    guest.patch()
    came = guest.settles(2 * SECONDS)
    until("the guest to see them", lambda: guest.count() == MANY, SECONDS)
    guest.manifest = copy.deepcopy(guest.start)
    guest.patch()
    went = guest.settles(2 * SECONDS)
    print(f"{MANY} volumes came in {came:.2f} s and went in {went:.2f} s")
    until("the guest to see none", lambda: guest.count() == 0, SECONDS)
    guest.nothing_leaks()


# ------------------------------------------------------------ one after another, paused, restarted


@pytest.mark.long
def test_five_volumes_come_one_after_another_are_used_and_go(guest: HotGuest) -> None:
    before = guest.host.warnings(guest.name)
    for name in CLAIMS[:5]:
        guest.add(on_claim(name))
        guest.apply()
        guest.settles()
    guest.sees(*CLAIMS[:5])
    device = f"{BY_ID}/scsi-0QEMU_QEMU_HARDDISK_$d"
    used = guest.shell(
        f"for d in {' '.join(CLAIMS[:5])}; do printf $d | dd of={device} conv=fsync 2>/dev/null;"
        f" head -c ${{#d}} {device}; echo; done"
    )
    assert used.split() == list(CLAIMS[:5])
    for name in CLAIMS[:5]:
        guest.drop(name)
        guest.apply()
        guest.settles()
    guest.sees()
    guest.nothing_leaks()
    assert guest.host.warnings(guest.name) == before


@pytest.mark.long
def test_a_virtio_disk_has_a_thread_of_its_own_if_asked_to(guest: HotGuest) -> None:
    guest.spec["volumes"].append(on_claim("alpha"))
    disk = {"name": "alpha", "disk": {"bus": "virtio"}, "dedicatedIOThread": True}
    guest.devices["disks"].append(disk)
    guest.apply()
    guest.settles()
    guest.sees("alpha")
    tasks = Path(f"/proc/{guest.host.qemu(guest.name)}/task")
    assert "IO io-ua-alpha" in [each.read_text().strip() for each in tasks.glob("*/comm")]
    guest.drop("alpha")
    guest.apply()
    guest.settles()
    guest.sees()
    guest.nothing_leaks()


@pytest.mark.long
def test_given_the_guest_is_paused_then_a_scsi_disk_comes_all_the_same(guest: HotGuest) -> None:
    guest.host.run("virtctl", "pause", "vm", guest.name)
    try:
        guest.add(on_claim("alpha"))
        guest.apply()
        guest.settles()
    finally:
        guest.host.run("virtctl", "unpause", "vm", guest.name)
    guest.sees("alpha")


@pytest.mark.long
def test_hot_disks_are_there_after_a_restart_and_can_still_go(guest: HotGuest) -> None:
    guest.add(on_claim("alpha"))
    guest.add(on_claim("beta"), disk={"bus": "virtio"})
    guest.apply()
    guest.settles()
    guest.sees("alpha", "beta")
    guest.shell(f"for d in alpha beta; do printf $d | dd of=$(echo {BY_ID}/*$d) conv=fsync; done")
    before = guest.host.uid(guest.name)
    guest.host.run("virtctl", "restart", guest.name)
    until("another instance", lambda: guest.host.uid(guest.name) not in ("", before))
    guest.host.answers(guest.name)
    guest.shell("modprobe usb-storage")
    guest.settles()
    guest.sees("alpha", "beta")
    for name in ("alpha", "beta"):
        assert guest.shell(f"head -c {len(name)} $(echo {BY_ID}/*{name})") == name
    for name in ("alpha", "beta"):
        guest.drop(name)
    guest.apply()
    guest.settles()
    guest.sees()
    guest.nothing_leaks()
    guest.needs_no_restart()
