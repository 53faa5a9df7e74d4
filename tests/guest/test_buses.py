"""Disks as the guest finds them: bus, serial number, size, write protection, boot order."""

from __future__ import annotations

import pytest

from .guest_host import GuestHost
from .many_disks import IN_BOOTED, NAME, MiB

pytestmark = [pytest.mark.guest, pytest.mark.slow, pytest.mark.soak]

VIRTIO, SCSI, SATA = "virtio-", "scsi-0QEMU_QEMU_HARDDISK_", "ata-QEMU_HARDDISK_"
#: The name the guest makes of bus and serial number, the size, and whether it may be written.
DISKS = {
    "a virtio disk": (f"{VIRTIO}CLAIM", 32 * MiB, 0),
    "a write-protected virtio disk": (f"{VIRTIO}LOCKED", 4 * MiB, 1),
    "a SCSI disk": (f"{SCSI}BLANK", 16 * MiB, 0),
    "a SCSI disk on a claim that may only be read": (f"{SCSI}KEPT", 8 * MiB, 1),
    "a SATA disk": (f"{SATA}EMPTY", 24 * MiB, 0),
    "a SATA disk larger than what it was cloned from": (f"{SATA}CLONE", 12 * MiB, 0),
}


@pytest.mark.parametrize(("link", "size", "protected"), DISKS.values(), ids=DISKS)
def test_a_disk_is_found_by_bus_and_serial_number(
    many_disks: GuestHost, link: str, size: int, protected: int
) -> None:
    seen = many_disks.shell(NAME, f"lsblk -bdnro TYPE,SIZE,RO /dev/disk/by-id/{link}")
    assert seen == f"disk {size} {protected}"


@pytest.mark.parametrize("link", [f"{VIRTIO}LOCKED", f"{SCSI}KEPT"])
def test_a_protected_disk_cannot_be_written(many_disks: GuestHost, link: str) -> None:
    script = f"dd if=/dev/zero of=/dev/disk/by-id/{link} bs=512 count=1 conv=fsync"
    done = many_disks.attempt("livevirt", "exec", NAME, "--", "sh", "-c", script)
    assert done.returncode == 1, done.stderr
    content = many_disks.shell(NAME, f"head -c 19 /dev/disk/by-id/{link}")
    assert content == "written by the host"


@pytest.mark.parametrize(
    ("label", "module"), [("PRESSED", "ahci"), ("cidata", "virtio_scsi")], ids=["SATA", "SCSI"]
)
def test_a_disc_is_in_a_drive_of_its_bus(many_disks: GuestHost, label: str, module: str) -> None:
    seen = many_disks.shell(
        NAME,
        f"device=$(blkid -L {label} || blkid -t LABEL={label.upper()} -o device);"
        'lsblk -dnro TYPE,RO "$device"; readlink -f "/sys/block/${device##*/}"',
    )
    kind, _, path = seen.partition("\n")
    assert kind == "rom 1"
    assert ("/ata" in path) is (module == "ahci"), path
    assert ("/virtio" in path) is (module == "virtio_scsi"), path


def test_given_two_disks_to_boot_from_then_boot_order_decides_and_not_the_list(
    many_disks: GuestHost,
) -> None:
    assert IN_BOOTED.decode() in many_disks.shell(NAME, "cat /proc/cmdline")
