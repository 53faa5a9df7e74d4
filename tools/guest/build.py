#!/usr/bin/env python3
"""Build the test guest: a bootable qcow2 and an OCI image layout that carries it.

A small real Linux from Debian packages: the distribution's kernel, busybox, the guest agent and a
few tools in an initramfs, on a FAT disk that the BIOS boots through syslinux. Everything is made as
plain files, so no root, loop device or mount is needed. What the guest does lives in `files/`.

    python3 tools/guest/build.py [--output DIR]

A second run with the same sources and package versions has nothing to do.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernel import lz4, repacked_kernel

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parent.parent / ".cache" / "guest"
IMAGE_NAME = "livevirt/guest:latest"

# Host tool -> the Debian package that has it.
HOST_TOOLS = {
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "lz4": "lz4",
    "mcopy": "mtools",
    "mkfs.vfat": "dosfstools",
    "qemu-img": "qemu-utils",
    "syslinux": "syslinux",
}

# The generic kernel: the cloud flavour has no AHCI and so no SATA CD-ROM.
KERNEL = "linux-image-amd64"
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

COMMAND_LINE = (
    "console=ttyS0 quiet loglevel=2 panic=0 memhp_default_state=online_movable "
    "mitigations=off no_timer_check random.trust_cpu=on cryptomgr.notests swiotlb=noforce"
)
DISK_SIZE_KIB = 32 * 1024
QEMU_UID = 107  # the user that owns the disk in KubeVirt's container disks


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the test guest's image.")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR")
    output: Path = parser.parse_args().output.absolute()
    check_host_tools()
    output.mkdir(parents=True, exist_ok=True)
    with locked(output / "lock"):
        packages = available_packages()
        stamp = output / "stamp"
        wanted = stamp_of(packages)
        if stamp.exists() and stamp.read_text() == wanted:
            say(f"up to date: {output / 'oci'}")
            return
        stamp.unlink(missing_ok=True)
        build(output, packages)
        stamp.write_text(wanted)


def build(output: Path, packages: dict[str, str]) -> None:
    """Write `guest.qcow2` and the layout `oci/` into `output`."""
    work = output / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    unpacked = unpack(download(output / "debs", packages), work / "packages")
    root = make_root(unpacked, work)
    initrd = work / "initrd"
    say("packing kernel and initramfs")
    initrd.write_bytes(lz4(cpio(root)))
    (image,) = unpacked.glob("linux-image-*/boot/vmlinuz-*")
    kernel = work / "vmlinuz"
    kernel.write_bytes(repacked_kernel(image.read_bytes()))
    disk = output / "guest.qcow2"
    make_disk(kernel, initrd, work, disk)
    make_layout(disk, output / "oci")
    shutil.rmtree(work)
    say(f"done: {output / 'oci'} ({disk.stat().st_size >> 20} MiB)")


# --- packages -----------------------------------------------------------------------------------


def check_host_tools() -> None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    os.environ["PATH"] = path  # mkfs.vfat is there, and not on every user's PATH
    missing = sorted(package for tool, package in HOST_TOOLS.items() if not shutil.which(tool))
    if missing:
        sys.exit(f"guest: host tools are missing; run: apt-get install {' '.join(missing)}")


def available_packages() -> dict[str, str]:
    """Map each package to the file name and digest that apt would download."""
    depends = run("apt-cache", "depends", "--important", KERNEL)
    kernel = re.search(r"Depends: (linux-image-\S+)", depends)
    if kernel is None:
        sys.exit(f"guest: apt knows no {KERNEL}; on Debian, run: apt-get update")
    names = [kernel[1], *PROGRAMS, SCRIPT_BUSYBOX, *LIBRARIES, *DATA]
    lines = run("apt-get", "download", "--print-uris", *names).splitlines()
    files = [line.split()[1] + " " + line.split()[3] for line in lines if line.startswith("'")]
    return {file.split("_")[0]: file for file in files}


def stamp_of(packages: dict[str, str]) -> str:
    """Digest of everything that goes into the image."""
    digest = hashlib.sha256(json.dumps(packages, sort_keys=True).encode())
    for path in sorted([*HERE.glob("*.py"), *(HERE / "files").rglob("*")]):
        if path.is_file():
            digest.update(f"\0{path.name}\0{path.stat().st_mode & 0o111}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def download(directory: Path, packages: dict[str, str]) -> list[Path]:
    """Fetch the packages that are not there yet; old versions go."""
    directory.mkdir(exist_ok=True)
    wanted = {directory / file.split()[0]: name for name, file in packages.items()}
    for path in directory.iterdir():
        if path not in wanted:
            path.unlink()
    missing = [name for path, name in wanted.items() if not path.exists()]
    if missing:
        say(f"downloading {len(missing)} packages")
        run("apt-get", "download", "-q", *missing, cwd=directory)
    for path, name in wanted.items():
        kind, _, digest = packages[name].split()[1].partition(":")
        if hashlib.new(kind.lower(), path.read_bytes()).hexdigest() != digest:
            path.unlink()
            sys.exit(f"guest: {path.name} is damaged and was removed; run again")
    return sorted(wanted)


def unpack(debs: Iterable[Path], directory: Path) -> Path:
    """Unpack each package into a folder of its own name."""
    say("unpacking packages")
    for deb in debs:
        target = directory / deb.name.split("_")[0]
        target.mkdir(parents=True)
        run("dpkg-deb", "-x", str(deb), str(target))
    return directory


# --- the root file system -----------------------------------------------------------------------


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
    shutil.copytree(HERE / "files", root, dirs_exist_ok=True)
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


# --- the image ----------------------------------------------------------------------------------


def make_disk(kernel: Path, initrd: Path, work: Path, disk: Path) -> None:
    """Write a qcow2 that the BIOS boots: FAT on the whole disk, syslinux, kernel and initramfs."""
    say("writing the disk")
    raw = work / "guest.img"
    config = work / "syslinux.cfg"
    config.write_text(
        "PROMPT 0\nTIMEOUT 0\nDEFAULT guest\n"
        f"LABEL guest\n  KERNEL /vmlinuz\n  INITRD /initrd\n  APPEND {COMMAND_LINE}\n"
    )
    run("mkfs.vfat", "-C", "-i", "6c697665", "-n", "GUEST", str(raw), str(DISK_SIZE_KIB))
    run("syslinux", "--install", str(raw))
    for source, name in ((kernel, "vmlinuz"), (initrd, "initrd"), (config, "syslinux.cfg")):
        run("mcopy", "-i", str(raw), str(source), f"::/{name}")
    fresh = disk.with_suffix(".new")
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(fresh))
    fresh.rename(disk)


def make_layout(disk: Path, layout: Path) -> None:
    """Write an OCI image layout whose one layer holds the disk as `disk/guest.qcow2`."""
    say("writing the OCI image")
    shutil.rmtree(layout, ignore_errors=True)
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def add(data: bytes, media_type: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        kind = f"application/vnd.oci.image.{media_type}"
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    def add_json(content: dict[str, object], media_type: str) -> dict[str, object]:
        return add(json.dumps(content, separators=(",", ":")).encode(), media_type)

    tar = layer(disk)
    config: dict[str, object] = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}"]},
    }
    manifest: dict[str, object] = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": add_json(config, "config.v1+json"),
        "layers": [add(gzip.compress(tar, 1, mtime=0), "layer.v1.tar+gzip")],
    }
    entry = add_json(manifest, "manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": IMAGE_NAME}
    index = {"schemaVersion": 2, "manifests": [entry]}
    (layout / "index.json").write_text(json.dumps(index))
    (layout / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))


def layer(disk: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        folder = tarfile.TarInfo("disk")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o555
        file = tarfile.TarInfo("disk/guest.qcow2")
        file.size, file.mode = disk.stat().st_size, 0o440
        for entry in (folder, file):
            entry.uid = entry.gid = QEMU_UID
        tar.addfile(folder)
        with disk.open("rb") as content:
            tar.addfile(file, content)
    return out.getvalue()


# --- the host -----------------------------------------------------------------------------------


def run(*command: str, cwd: Path | None = None) -> str:
    """Run a host tool and return what it printed; its errors end the build."""
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"guest: {' '.join(command[:3])} failed: {result.stderr.strip()}")
    return result.stdout


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep a second build of the same output waiting."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def say(message: str) -> None:
    print(f"guest: {message}", flush=True)


if __name__ == "__main__":
    main()
