"""Which mounted file systems lie on a drive, by what the guest agent says. Pure.

A guest names its disks as it likes, and may know no serial; where a disk is plugged in it always
knows.
"""

from collections.abc import Iterable, Mapping

from livevirt.qemu.agent import Filesystem, FilesystemDisk, PciAddress
from livevirt.qemu.disk import SCSI_CONTROLLER
from livevirt.qemu.observe import Drive

_DISCS = ("iso9660", "udf")
_MOST_POINTS, _LONGEST_POINT = 10, 256  # it is a guest's word, and ends up in messages


def mount_points(
    drive: Drive, filesystems: Iterable[Filesystem], addresses: Mapping[str, PciAddress]
) -> list[str]:
    """Return where the guest has mounted what is on a drive, or the first few places.

    Discs are not told apart: of a drive whose tray the guest has locked, all of them are named.
    """
    found = {
        each.mountpoint[:_LONGEST_POINT]
        for each in filesystems
        if (drive.locked and each.type in _DISCS)
        or any(_is(disk, drive, addresses) for disk in each.disk)
    }
    return sorted(found)[:_MOST_POINTS]


def _is(disk: FilesystemDisk, drive: Drive, addresses: Mapping[str, PciAddress]) -> bool:
    if drive.lun is not None:
        on_controller = disk.pci_controller == addresses.get(SCSI_CONTROLLER)
        return on_controller and (disk.target, disk.unit) == (0, drive.lun)
    return drive.id in addresses and disk.pci_controller == addresses[drive.id]
