"""Every kind of volume, read and written by a guest."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from livevirt.node.images import ImageStore
from livevirt.paths import default_data_dir

from .guest_host import IMAGE, GuestHost, until
from .many_disks import FETCHED, NAME, ON_DISC, TEXT, MiB, answers

pytestmark = [pytest.mark.guest, pytest.mark.slow]

BY_ID = "/dev/disk/by-id"


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def overwrite(host: GuestHost, disk: str, text: str) -> None:
    """Write to the beginning of a disk, from inside, and see it there."""
    device = f"{BY_ID}/{disk}"
    script = f"printf '{text}' | dd of={device} conv=fsync,notrunc; head -c {len(text)} {device}"
    assert host.shell(NAME, script) == text


def test_a_container_disk_is_written_by_the_guest_and_the_image_stays_as_it_is(
    many_disks: GuestHost,
) -> None:
    image = ImageStore(default_data_dir() / "images").find(IMAGE)
    assert image is not None
    before = digest(image.path)
    device = f"{BY_ID}/scsi-0QEMU_QEMU_HARDDISK_CONTAINER"
    files = many_disks.shell(
        NAME,
        f"mkdir -p /tmp/c && mount {device} /tmp/c && echo mine > /tmp/c/own && umount /tmp/c;"
        f"mount -o ro {device} /tmp/c; cat /tmp/c/own; ls /tmp/c/vmlinuz; umount /tmp/c",
    )
    assert files.split() == ["mine", "/tmp/c/vmlinuz"]
    assert digest(image.path) == before


def test_cloud_init_gives_the_guest_its_name(many_disks: GuestHost) -> None:
    assert many_disks.shell(NAME, "hostname") == "many-disks"


def test_an_empty_disk_and_a_blank_claim_take_a_file_system(many_disks: GuestHost) -> None:
    for disk in ("ata-QEMU_HARDDISK_EMPTY", "virtio-CLAIM", "scsi-0QEMU_QEMU_HARDDISK_BLANK"):
        seen = many_disks.shell(
            NAME,
            f"mkdir -p /tmp/e && mkfs.ext4 -q {BY_ID}/{disk} && mount {BY_ID}/{disk} /tmp/e &&"
            f" echo hello > /tmp/e/file && umount /tmp/e && mount {BY_ID}/{disk} /tmp/e &&"
            " cat /tmp/e/file; findmnt -no FSTYPE /tmp/e; umount /tmp/e",
        )
        assert seen.split() == ["hello", "ext4"], disk


@pytest.mark.parametrize(
    ("disk", "claim"),
    {
        "virtio-CLAIM": "disks-claim",
        "scsi-0QEMU_QEMU_HARDDISK_BLANK": "disks-blank",
        "ata-QEMU_HARDDISK_CLONE": "disks-clone",
    }.items(),
)
def test_what_is_written_to_a_claim_is_in_the_volume_of_that_claim(
    many_disks: GuestHost, disk: str, claim: str
) -> None:
    overwrite(many_disks, disk, "from inside")
    with many_disks.disk_of(claim).open("rb") as file:
        assert file.read(11) == b"from inside"
    with many_disks.disk_of("disks-filled").open("rb") as file:
        assert file.read(len(TEXT)) == TEXT  # a clone is a copy


def test_what_is_written_to_an_ephemeral_volume_is_not_in_its_claim(many_disks: GuestHost) -> None:
    read = many_disks.shell(NAME, f"head -c {len(TEXT)} {BY_ID}/virtio-EPHEMERAL")
    assert read == TEXT.decode().strip()
    overwrite(many_disks, "virtio-EPHEMERAL", "from inside")
    with many_disks.disk_of("disks-filled").open("rb") as file:
        assert file.read(len(TEXT)) == TEXT


def test_a_disc_of_a_local_iso_file_is_read(many_disks: GuestHost) -> None:
    seen = many_disks.shell(
        NAME,
        "mkdir -p /tmp/d && mount -o ro $(blkid -L PRESSED) /tmp/d && cat /tmp/d/text;"
        "umount /tmp/d",
    )
    assert seen == ON_DISC.decode().strip()


def test_a_data_volume_of_an_image_holds_what_the_image_does(many_disks: GuestHost) -> None:
    seen = many_disks.shell(
        NAME,
        f"mkdir -p /tmp/i && mount -o ro {BY_ID}/virtio-IMPORTED /tmp/i && ls /tmp/i;umount /tmp/i",
    )
    assert {"initrd", "syslinux.cfg", "vmlinuz"} <= set(seen.split())


def test_a_data_volume_of_a_web_site_holds_what_was_sent_and_room_beyond(
    many_disks: GuestHost,
) -> None:
    disk = f"{BY_ID}/scsi-0QEMU_QEMU_HARDDISK_FETCHED"
    seen = many_disks.shell(NAME, f"head -c {len(FETCHED)} {disk}; lsblk -bdnro SIZE {disk}")
    assert seen == f"{FETCHED.decode()}{8 * MiB}"


@pytest.mark.parametrize(
    ("disk", "claim"),
    [("virtio-CLAIM", "disks-claim"), ("scsi-0QEMU_QEMU_HARDDISK_BLANK", "disks-blank")],
)
def test_given_a_claim_grows_then_so_does_the_disk_the_guest_was_started_with(
    many_disks: GuestHost, disk: str, claim: str
) -> None:
    overwrite(many_disks, disk, "before")
    many_disks.grow(claim, "48Mi")
    asked = f"blockdev --getsize64 {BY_ID}/{disk}; head -c 6 {BY_ID}/{disk}"
    expected = [str(48 * MiB), "before"]
    until(f"{claim} of 48Mi", lambda: many_disks.shell(NAME, asked).split() == expected, 60)

    def told() -> list[object]:
        listed = many_disks.get("vmi", NAME)["status"]["volumeStatus"]
        infos = [(each.get("persistentVolumeClaimInfo") or {}, each) for each in listed]
        return [
            (info["capacity"], each["size"])
            for info, each in infos
            if info.get("claimName") == claim
        ]

    until("the status", lambda: told() == [({"storage": "48Mi"}, 48 * MiB)], 60)
    assert many_disks.disk_of(claim).stat().st_size == 48 * MiB


@pytest.mark.long
def test_given_the_vm_stops_and_starts_then_claims_have_kept_what_others_have_lost(
    many_disks: GuestHost,
) -> None:
    for disk in ("virtio-CLAIM", "virtio-EPHEMERAL", "ata-QEMU_HARDDISK_EMPTY"):
        overwrite(many_disks, disk, "before")
    before = many_disks.uid(NAME)
    many_disks.run("virtctl", "restart", NAME)
    until("another instance", lambda: many_disks.uid(NAME) not in ("", before))
    answers(many_disks)
    seen = many_disks.shell(
        NAME,
        f"cd {BY_ID}; for disk in virtio-CLAIM virtio-EPHEMERAL ata-QEMU_HARDDISK_EMPTY; do"
        " head -c 6 $disk | tr '\\0' .; echo; done",
    )
    assert seen.splitlines() == ["before", "writte", "......"]
