"""The guest's root file system: programs, libraries and kernel modules out of Debian packages."""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from host import run, say

FILES = Path(__file__).resolve().parent / "files"

PROGRAMS = {
    "busybox": ["bin/busybox"],
    "e2fsprogs": ["sbin/mke2fs"],
    "eject": ["bin/eject"],
    "mount": ["bin/mount", "bin/umount"],
    "pciutils": ["bin/lspci"],
    "qemu-guest-agent": ["sbin/qemu-ga"],
    "util-linux": ["bin/findmnt", "bin/lsblk", "bin/lscpu", "bin/lsmem", "sbin/blkid"],
}
# For the guest's own scripts: its shell runs applets without starting a program each time. People
# get the other one, whose shell finds the full `mount` on the path.
SCRIPT_BUSYBOX = "busybox-static"
# Searched for the libraries the programs ask for; only those are copied.
LIBRARIES = [
    "libblkid1",
    "libc6",
    "libcom-err2",
    "libext2fs2",
    "libglib2.0-0",
    "libkmod2",
    "liblzma5",
    "libmount1",
    "libnuma1",
    "libpci3",
    "libpcre2-8-0",
    "libselinux1",
    "libsmartcols1",
    "libssl3",
    "libudev1",
    "liburing2",
    "libuuid1",
    "libzstd1",
    "zlib1g",
]
DATA = ["pci.ids"]

# Loaded on demand by the device's modalias or the file system's name; dependencies come along.
MODULES = [
    "ahci",
    "button",
    "crc32c_generic",
    "e1000e",
    "evdev",
    "ext4",
    "isofs",
    "nls_ascii",
    "nls_cp437",
    "nls_utf8",
    "sd_mod",
    "sr_mod",
    "uas",
    "usb-storage",
    "vfat",
    "virtio_balloon",
    "virtio_blk",
    "virtio_console",
    "virtio_mem",
    "virtio_net",
    "virtio_pci",
    "virtio_rng",
    "virtio_scsi",
    "xhci-pci",
]

# What of pci.ids `lspci` needs to name QEMU's devices.
PCI_VENDORS = {"1033", "1234", "1af4", "1b36"}
PCI_DEVICES = {"8086": {"100e", "10d3", "2918", "2922", "2930", "2934", "29c0", "7000"}}


def make_root(unpacked: Path, work: Path) -> Path:
    """Assemble the guest's root directory, with /bin, /sbin and /lib merged into /usr."""
    say("assembling the root file system")
    root = work / "root"
    for name in ("dev", "etc", "mnt", "proc", "root", "run", "sys", "tmp", "usr/share/misc", "var"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir()
        (root / name).symlink_to(f"usr/{name}")
    (root / "var/run").symlink_to("/run")
    (root / "init").symlink_to("bin/busybox")
    (root / "etc/mtab").symlink_to("/proc/mounts")
    shutil.copytree(FILES, root, dirs_exist_ok=True)
    programs = [
        install(locate(unpacked / package, path), path, root)
        for package, paths in PROGRAMS.items()
        for path in paths
    ]
    install(locate(unpacked / SCRIPT_BUSYBOX, "bin/busybox"), "lib/guest/busybox", root)
    for link in ("mkfs.ext4", "mkfs.ext3", "mkfs.ext2"):
        (root / "sbin" / link).symlink_to("mke2fs")
    install_libraries(programs, unpacked, root)
    install_modules(unpacked, root)
    (ids,) = unpacked.glob("pci.ids/usr/share/misc/pci.ids")
    (root / "usr/share/misc/pci.ids").write_text("".join(trimmed_pci_ids(ids)))
    (busybox,) = unpacked.glob("busybox/bin/busybox")
    for applet in run(str(busybox), "--list").split():
        if not any((root / place / applet).exists() for place in ("bin", "sbin")):
            (root / "bin" / applet).symlink_to("busybox")
    for applet in ("acpid", "getty", "halt", "init", "modprobe", "poweroff", "reboot", "udhcpc"):
        # Asked for by full path: by the kernel, init and the guest agent.
        (root / "sbin" / applet).symlink_to("../bin/busybox")
    return root


def locate(package: Path, path: str) -> Path:
    """Find a program that the package has with or without /usr."""
    for candidate in (package / path, package / "usr" / path):
        if candidate.exists():
            return candidate
    sys.exit(f"guest: package {package.name} has no {path}")


def install(source: Path, path: str, root: Path) -> Path:
    target = root / "usr" / path
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    return target


def install_libraries(programs: list[Path], unpacked: Path, root: Path) -> None:
    """Copy what the programs link, as the guest's own loader resolves it."""
    (loader,) = unpacked.glob("libc6/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    folders = sorted({str(path.parent) for path in unpacked.glob("*/**/x86_64-linux-gnu/*.so.*")})
    found: set[Path] = set()
    for program in programs:
        listing = subprocess.run(
            [loader, "--inhibit-cache", "--library-path", ":".join(folders), "--list", program],
            capture_output=True,
            text=True,
            check=False,  # a static program is an error to it
        ).stdout
        for name, path in re.findall(r"(\S+) => (not found|\S+)", listing):
            if not path.startswith(str(unpacked)):
                sys.exit(f"guest: {program.name} needs {name}, which no package in LIBRARIES has")
            found.add(Path(path))
    for path in found:
        if path.name != loader.name:
            install(path, f"lib/x86_64-linux-gnu/{path.name}", root)
    install(loader, "lib64/ld-linux-x86-64.so.2", root)


def install_modules(unpacked: Path, root: Path) -> None:
    """Copy MODULES and what they depend on, and index them for modprobe."""
    (source,) = unpacked.glob("linux-image-*/lib/modules/*")
    depmod = [str(root / "lib/guest/busybox"), "depmod"]
    run(*depmod, "-b", str(source.parent.parent.parent), source.name)
    depends = dict(
        line.split(":", 1) for line in (source / "modules.dep").read_text().splitlines() if line
    )
    paths = {Path(path).stem.replace("-", "_"): path for path in depends}
    target = root / "lib/modules" / source.name
    for name in MODULES:
        path = paths.get(name.replace("-", "_"))
        if path is None:
            continue  # built into this kernel
        for needed in [path, *depends[path].split()]:
            (target / needed).parent.mkdir(parents=True, exist_ok=True)
            (target / needed).write_bytes(unsigned((source / needed).read_bytes()))
    for index in ("modules.order", "modules.builtin"):
        shutil.copy(source / index, target)
    run(*depmod, "-b", str(root), source.name)
    for index in ("modules.order", "modules.builtin"):
        (target / index).unlink()


def unsigned(module: bytes) -> bytes:
    """Drop a module's signature: checking it is slow where the CPU is emulated."""
    magic = b"~Module signature appended~\n"
    if not module.endswith(magic):
        return module
    end = len(module) - len(magic)
    length = int.from_bytes(module[end - 4 : end], "big")  # last field of struct module_signature
    return module[: end - 12 - length]


def trimmed_pci_ids(path: Path) -> Iterator[str]:
    """Yield the lines about device classes and the devices QEMU has."""
    wanted: set[str] | None = set()  # devices of the current vendor; None means all
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        word = line.split(" ", 1)[0].strip()
        if re.match(r"[0-9a-f]{4}  ", line):
            wanted = None if word in PCI_VENDORS else PCI_DEVICES.get(word, set())
            if wanted is None or wanted:
                yield line
        elif re.match(r"C [0-9a-f]{2}  ", line):
            wanted = None
            yield line
        elif re.match(r"\t\w", line) and (wanted is None or word in wanted):
            yield line


def cpio(root: Path) -> bytes:
    """Pack a directory in the kernel's `newc` format, everything owned by root."""
    out = io.BytesIO()
    serial = 0

    def add(name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        nonlocal serial
        serial += 1
        encoded = name.encode() + b"\0"
        fields = (serial, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
        out.write(b"070701" + b"".join(b"%08X" % field for field in fields) + encoded)
        out.write(b"\0" * (-out.tell() % 4) + data)
        out.write(b"\0" * (-out.tell() % 4))

    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        mode = path.lstat().st_mode
        if path.is_symlink():
            add(name, stat.S_IFLNK | 0o777, os.readlink(path).encode())
        elif path.is_dir():
            add(name, stat.S_IFDIR | 0o755)
        else:
            add(name, stat.S_IFREG | (0o755 if mode & 0o111 else 0o644), path.read_bytes())
    add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    add("TRAILER!!!", 0)
    return out.getvalue()
