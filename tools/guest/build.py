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
import gzip
import hashlib
import io
import json
import re
import shutil
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

from host import check_host_tools, locked, run, say
from kernel import lz4, repacked_kernel
from rootfs import DATA, LIBRARIES, PROGRAMS, SCRIPT_BUSYBOX, cpio, make_root

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parent.parent / ".cache" / "guest"
IMAGE_NAME = "livevirt/guest:latest"

# The generic kernel: the cloud flavour has no AHCI and so no SATA CD-ROM.
KERNEL = "linux-image-amd64"
COMMAND_LINE = (
    "console=ttyS0 quiet loglevel=2 panic=0 memhp_default_state=online_movable "
    # Without what only costs time (an emulated CPU feels each of these) or memory.
    "mitigations=off no_timer_check random.trust_cpu=on cryptomgr.notests swiotlb=noforce "
    "init_on_alloc=0 edd=off rcupdate.rcu_expedited=1 lsm=capability audit=0"
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


if __name__ == "__main__":
    main()
