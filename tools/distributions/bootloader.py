"""GRUB for the BIOS on a GPT disk image, installed by writing its sectors.

`grub-install` needs a mounted device. A disk image only needs three things, whose layout is that of
GRUB's `boot.S` and `diskboot.S`: the boot sector, the core image in a BIOS boot partition, and the
sector number of the second in the first.
"""

from __future__ import annotations

import struct
from pathlib import Path

from host import run

MODULES = ("biosdisk", "part_gpt", "ext2", "linux", "normal", "configfile", "echo", "reboot")
GRUB = Path("/usr/lib/grub/i386-pc")
SECTOR = 512
BOOT_CODE = 440  # bytes of the first sector that are code; the partition table follows
KERNEL_SECTOR = 0x5C  # in boot.img: where the core image starts
DRIVE_CHECK = 0x66  # in boot.img: a jump for floppy disks, which grub-install removes as well
BLOCK_LIST = 0x1F4  # in the core image's first sector: where the rest of it is


def install(disk: Path, *, first_sector: int, sectors: int, root: int, work: Path) -> None:
    """Make `disk` boot from its GPT partition number `root`.

    `first_sector` and `sectors` are the BIOS boot partition.
    """
    core_file = work / "core.img"
    prefix = f"(,gpt{root})/boot/grub"  # no disk name: the one the BIOS booted from
    run("grub-mkimage", "-O", "i386-pc", "-o", str(core_file), "-p", prefix, *MODULES)
    core = bytearray(core_file.read_bytes())
    core += bytes(-len(core) % SECTOR)
    count = len(core) // SECTOR
    if count > sectors:
        raise SystemExit(f"guest: GRUB needs {count} sectors and its partition has {sectors}")
    struct.pack_into("<QH", core, BLOCK_LIST, first_sector + 1, count - 1)
    boot = bytearray((GRUB / "boot.img").read_bytes()[:BOOT_CODE])
    struct.pack_into("<Q", boot, KERNEL_SECTOR, first_sector)
    boot[DRIVE_CHECK : DRIVE_CHECK + 2] = b"\x90\x90"
    with disk.open("r+b") as image:
        image.write(boot)
        image.seek(first_sector * SECTOR)
        image.write(core)
