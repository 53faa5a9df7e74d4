"""Volumes and discs come and go by virtctl, seen from inside the guest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .guest_host import SECONDS, GuestHost, until
from .hot_volumes import BY_ID, HotGuest, a_claim, a_disc

pytestmark = [pytest.mark.guest, pytest.mark.slow]

DISK = f"{BY_ID}/scsi-0QEMU_QEMU_HARDDISK_"


@pytest.fixture(scope="module")
def host(guest_host: GuestHost, tmp_path_factory: pytest.TempPathFactory) -> GuestHost:
    """The server, with empty claims and two discs."""
    folder = tmp_path_factory.mktemp("discs")
    for label in ("first", "second"):
        filling = ("--pvc", label, "--data-dir", str(guest_host.server.data))
        guest_host.run("livevirt", "volume", "import", str(a_disc(folder, label)), *filling)
    guest_host.apply(a_claim("spare"), a_claim("lonely"))
    return guest_host


@pytest.fixture(scope="module")
def guest(host: GuestHost) -> Iterator[HotGuest]:
    guest = HotGuest(host, "commanded")
    guest.apply()
    host.answers(guest.name)
    yield guest
    host.discard(guest.name)


def test_a_disk_is_added_used_and_removed(guest: HotGuest) -> None:
    host, name = guest.host, guest.name
    out = host.run("virtctl", "addvolume", name, "--volume-name=spare", "--wait")
    assert out.splitlines()[-1].startswith(f"VM {name} has volume spare as sd")
    guest.sees("spare")
    kept = guest.shell(
        f"mkfs.ext4 -q {DISK}spare && mkdir -p /mnt/s && mount {DISK}spare /mnt/s"
        " && echo kept > /mnt/s/f && cat /mnt/s/f"
    )
    assert kept == "kept"

    host.run("virtctl", "removevolume", name, "--volume-name=spare")
    guest.waits("spare", "Detaching", "InUseByGuest", "/mnt/s")
    guest.shell("umount /mnt/s")
    until("the disk to go", lambda: "spare" not in guest.told(), SECONDS)
    guest.sees()
    guest.needs_no_restart()
    guest.is_as_written()
    guest.nothing_leaks()


def test_a_disk_that_the_guest_holds_is_pulled_out_by_force(guest: HotGuest) -> None:
    host, name = guest.host, guest.name
    host.run("virtctl", "addvolume", name, "--volume-name=spare", "--wait")
    guest.sees("spare")
    guest.shell(f"mkdir -p /mnt/s && mount {DISK}spare /mnt/s")
    host.run("virtctl", "removevolume", name, "--volume-name=spare")
    guest.waits("spare", "Detaching", "InUseByGuest", "/mnt/s")
    out = host.run("virtctl", "removevolume", name, "--volume-name=spare", "--force")
    assert out.splitlines()[-1] == f"volume spare detached from VM {name}"
    guest.shell("umount -l /mnt/s")
    annotations = host.get("vm", name)["metadata"].get("annotations") or {}
    assert "livevirt.io/force-detach" not in annotations
    guest.is_as_written()


def test_discs_are_injected_swapped_and_ejected(guest: HotGuest) -> None:
    host, name = guest.host, guest.name
    for label in ("first", "second"):
        host.run("virtctl", "cdrom", "inject", name, "cd", "--volume-name", label, "--wait")
        assert guest.disc() == f"this is {label}"
    host.run("virtctl", "cdrom", "eject", name, "cd", "--wait")
    assert guest.disc() == ""
    guest.needs_no_restart()
    guest.is_as_written()


def test_a_disc_is_injected_by_addvolume_and_leaves_its_drive(guest: HotGuest) -> None:
    host, name = guest.host, guest.name
    add = ("virtctl", "addvolume", name, "--volume-name=first", "--disk-name=cd", "--wait")
    host.run(*add)
    assert guest.disc() == "this is first"
    host.run("virtctl", "removevolume", name, "--volume-name=cd", "--wait")
    assert guest.disc() == ""
    assert "sr0" in guest.drives()


@pytest.mark.long
def test_an_instance_without_a_vm_has_volumes_added_too(host: GuestHost) -> None:
    template = HotGuest(host, "alone").manifest["spec"]["template"]
    instance = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "alone"},
        "spec": template["spec"],
    }
    host.apply(instance)
    try:
        host.answers("alone")
        host.run("virtctl", "addvolume", "alone", "--volume-name=lonely", "--wait")
        seen = "grep -ls lonely /sys/block/sd*/device/vpd_pg80 | wc -l"
        until("the disk", lambda: host.shell("alone", seen) == "1")
        host.run("virtctl", "removevolume", "alone", "--volume-name=lonely", "--wait")
        until("no disk", lambda: host.shell("alone", seen) == "0")
    finally:
        host.discard("alone", kind="vmi")
