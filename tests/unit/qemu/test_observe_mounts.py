"""Mounted file systems are found by where their disk is plugged in."""

import pytest

from livevirt.qemu.agent import Filesystem, FilesystemDisk, PciAddress
from livevirt.qemu.observe import Drive, addresses_of, mount_points

SCSI, FAST = PciAddress(1, 0, 0), PciAddress(7, 0, 0)
PLACES = {"scsi0": SCSI, "ua-fast": FAST}


def mounted(where: str, *disks: FilesystemDisk, kind: str = "ext4") -> Filesystem:
    return Filesystem(name="x", mountpoint=where, type=kind, disk=disks)


def on(address: PciAddress, unit: int = 0, target: int = 0) -> FilesystemDisk:
    return FilesystemDisk(unit=unit, target=target, pci_controller=address)


FILESYSTEMS = [
    mounted("/first", on(SCSI, 0)),
    mounted("/second", on(SCSI, 1)),
    mounted("/striped", on(SCSI, 1), on(FAST)),
    mounted("/elsewhere", on(PciAddress(0, 31, 2), 1)),
    mounted("/target", on(SCSI, 3, target=1)),
    mounted("/proc"),
    mounted("/disc", kind="iso9660"),
]


@pytest.mark.parametrize(
    ("drive", "points"),
    [
        (Drive("ua-a", lun=0), ["/first"]),
        (Drive("ua-b", lun=1), ["/second", "/striped"]),
        (Drive("ua-c", lun=3), []),
        (Drive("ua-fast"), ["/striped"]),
        (Drive("ua-other"), []),
        (Drive("ua-cd", locked=True), ["/disc"]),
        (Drive("ua-cd"), []),
    ],
)
def test_mount_points(drive: Drive, points: list[str]) -> None:
    assert mount_points(drive, FILESYSTEMS, PLACES) == points


def test_of_very_many_mount_points_some_are_named() -> None:
    many = [mounted(f"/{n:03}{'x' * 5000}", on(FAST)) for n in range(500)]
    points = mount_points(Drive("ua-fast"), many, PLACES)
    assert points[0].startswith("/000xxx")
    assert len(", ".join(points)) < 5000


def test_given_nobody_knows_where_the_controller_is_then_nothing_is_said_to_be_mounted() -> None:
    bare = [mounted("/x", FilesystemDisk(unit=0))]
    assert mount_points(Drive("ua-fast"), bare, {}) == []


def test_addresses_are_read_below_bridges_too() -> None:
    device = {"qdev_id": "ua-fast", "bus": 7, "slot": 0, "function": 0}
    port = {"qdev_id": "port6", "bus": 0, "slot": 2, "function": 6}
    unnamed = {"qdev_id": "", "bus": 0, "slot": 0, "function": 0}
    found = addresses_of([unnamed, {**port, "pci_bridge": {"devices": [device]}}])
    assert found == {"port6": PciAddress(0, 2, 6), "ua-fast": FAST}
