#!/usr/bin/env python3
"""Build real Debian guests: bootable qcow2 images made from the distribution's packages.

    tools/distributions/build.py --list
    tools/distributions/build.py debian-12-cloud debian-13-cloud [--import] [--output DIR]

Each image has systemd, cloud-init (NoCloud), the guest agent, GRUB for the BIOS and a root shell on
the serial console. What the kernel does with hot-plugged memory and CPUs is left as Debian ships
it, because that is what the tests are about. Packages come from the mirror in this machine's apt
configuration. No loop device or mount is needed; without root, mmdebstrap uses user namespaces.

An image is only built again when a file of this folder or the version of a package has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "guest"))

import bootloader  # noqa: E402
from host import locked, run, say  # noqa: E402

OUTPUT = ROOT / ".cache" / "distributions"
FILES = HERE / "files"
DISK_MIB = 3072  # the virtual size; the file is as large as its content
BOOT_SECTORS = (2048, 2048)  # first sector and count of the partition that holds GRUB
ROOT_SECTOR = 4096

# Host tool -> the Debian package that has it.
HOST_TOOLS = {
    "fakeroot": "fakeroot",
    "grub-mkimage": "grub-pc-bin",
    "mkfs.ext4": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "qemu-img": "qemu-utils",
    "sfdisk": "fdisk",
}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PACKAGES = [
    "ca-certificates",
    "cloud-guest-utils",
    "cloud-init",
    "dbus",
    "e2fsprogs",
    "eject",
    "fdisk",
    "initramfs-tools",
    "iproute2",
    "kmod",
    "lz4",
    "pciutils",
    "qemu-guest-agent",
    "systemd-resolved",
    "systemd-sysv",
    "udev",
]
# Neither read nor needed in a test guest.
LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")
# Periodic jobs that would disturb a measurement on an emulated CPU.
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
)
KERNELS = {"cloud": "linux-image-cloud-amd64", "generic": "linux-image-amd64"}
RELEASES = {"12": "bookworm", "13": "trixie"}


@dataclass(frozen=True, slots=True)
class Distribution:
    """One image to build."""

    version: str
    flavour: str

    @property
    def name(self) -> str:
        return f"debian-{self.version}-{self.flavour}"

    @property
    def image(self) -> str:
        """The name manifests use."""
        return f"livevirt/debian:{self.version}-{self.flavour}"

    @property
    def suite(self) -> str:
        return RELEASES[self.version]

    @property
    def packages(self) -> list[str]:
        return sorted([*PACKAGES, KERNELS[self.flavour]])


DISTRIBUTIONS = {
    distribution.name: distribution
    for distribution in (
        Distribution(version, flavour) for version in RELEASES for flavour in KERNELS
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Build Debian guests from packages.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which images; see --list")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument(
        "--import", dest="import_", action="store_true", help="import into livevirt's image store"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR")
    arguments = parser.parse_args()
    if arguments.list:
        for distribution in DISTRIBUTIONS.values():
            print(f"{distribution.name:20} {distribution.image}")
        return
    if unknown := sorted(set(arguments.names) - set(DISTRIBUTIONS)):
        parser.error(f"no such image: {', '.join(unknown)}; see --list")
    if not arguments.names:
        parser.error("name an image to build; see --list")
    output: Path = arguments.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    with locked(output / "tools.lock"):
        install_host_tools()
    for name in dict.fromkeys(arguments.names):
        disk = bring_up_to_date(DISTRIBUTIONS[name], output)
        if arguments.import_:
            import_image(disk, DISTRIBUTIONS[name].image)


def bring_up_to_date(distribution: Distribution, output: Path) -> Path:
    """Return the image of a distribution, built if it is missing or outdated."""
    disk = output / f"{distribution.name}.qcow2"
    stamp = output / f"{distribution.name}.stamp"
    with locked(output / f"{distribution.name}.lock"):
        work = output / f"{distribution.name}.work"
        remove(work)
        work.mkdir()
        sources = debian_sources(distribution.suite)
        debs = package_files(distribution, sources, work / "apt")
        wanted = None if debs is None else stamp_of(debs)
        if wanted is None:
            if not disk.exists():
                sys.exit(f"guest: cannot read the package lists of {distribution.suite}")
            say(f"{distribution.name}: the package mirror does not answer; using {disk}")
        elif stamp.exists() and disk.exists() and stamp.read_text() == wanted:
            say(f"{distribution.name}: up to date: {disk}")
        else:
            stamp.unlink(missing_ok=True)
            build(distribution, sources, work, disk)
            stamp.write_text(wanted)
        remove(work)
    return disk


def build(distribution: Distribution, sources: list[str], work: Path, disk: Path) -> None:
    """Write the qcow2 image of a distribution."""
    tar = work / "root.tar"
    say(f"{distribution.name}: installing packages of {distribution.suite} (some minutes)")
    bootstrap(distribution, sources, tar)
    say(f"{distribution.name}: writing the disk")
    raw = work / "disk.raw"
    partition(raw)
    # Under fakeroot, so that files belong to root in the image for any user that builds it.
    script = f"""
        mkdir {work}/root && tar -C {work}/root --exclude='./dev/*' -xf {tar}
        mkfs.ext4 -q -L debian-root -m 1 -E offset={ROOT_SECTOR * 512} \
            -d {work}/root {raw} {(DISK_MIB - 1) * 1024 - ROOT_SECTOR // 2}
    """
    run("fakeroot", "sh", "-euc", script)
    first, count = BOOT_SECTORS
    bootloader.install(raw, first_sector=first, sectors=count, root=2, work=work)
    fresh = work / "disk.qcow2"
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", str(raw), str(fresh))
    fresh.rename(disk)
    say(f"{distribution.name}: done: {disk} ({disk.stat().st_size >> 20} MiB)")


def bootstrap(distribution: Distribution, sources: list[str], tar: Path) -> None:
    """Install the packages and this folder's files into a tar archive."""
    overlay = f'tar -C {FILES} --owner=0 --group=0 -c . | tar -C "$1" -x --no-same-permissions'
    options = [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
    options += [f"--aptopt={setting}" for setting in transport_settings()]
    hooks = [
        "--hook-dir=/usr/share/mmdebstrap/hooks/maybe-merged-usr",
        f"--setup-hook={overlay}",
        '--customize-hook=: > "$1/etc/machine-id"',
        '--customize-hook=echo debian > "$1/etc/hostname"',
        '--customize-hook=rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap"',
        f'--customize-hook=chroot "$1" systemctl mask {" ".join(MASKED)}',
        '--customize-hook=chroot "$1" systemctl enable systemd-networkd systemd-resolved',
        # The packages' scripts have built the caches that systemd would build at the first boot.
        '--customize-hook=touch "$1/etc/.updated" "$1/var/.updated"',
        # What an installer would do at the end; the kernel's own package leaves it to the admin.
        '--customize-hook=chroot "$1" linux-update-symlinks install '
        '"$(ls "$1/lib/modules")" "/boot/vmlinuz-$(ls "$1/lib/modules")"',
    ]
    run(
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        "--architectures=amd64",
        f"--include={','.join(distribution.packages)}",
        *options,
        *hooks,
        distribution.suite,
        str(tar),
        *sources,
    )


def partition(raw: Path) -> None:
    """Create a GPT disk image: a BIOS boot partition and the root file system's."""
    with raw.open("wb") as file:
        file.truncate(DISK_MIB << 20)
    first, count = BOOT_SECTORS
    layout = (
        "label: gpt\n"
        f"start={first}, size={count}, type=21686148-6449-6E6F-744E-656564454649\n"
        f"start={ROOT_SECTOR}, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4\n"
    )
    subprocess.run(
        ["sfdisk", "--quiet", str(raw)], input=layout, text=True, check=True, capture_output=True
    )


# --- packages -----------------------------------------------------------------------------------


def debian_sources(suite: str) -> list[str]:
    """Return apt's lines for a Debian release on the mirrors this machine is configured with."""
    lines = run(
        "apt-get", "indextargets", "--format", "$(REPO_URI) $(LABEL)", "Created-By: Packages"
    )
    mirrors = {label: uri for uri, _, label in (line.partition(" ") for line in lines.splitlines())}
    if "Debian" not in mirrors:
        sys.exit("guest: apt has no Debian mirror; configure one, then run: apt-get update")
    key = f"[signed-by={KEYRING}]"
    sources = [f"deb {key} {mirrors['Debian']} {name} main" for name in (suite, f"{suite}-updates")]
    if "Debian-Security" in mirrors:
        sources.append(f"deb {key} {mirrors['Debian-Security']} {suite}-security main")
    return sources


def transport_settings() -> list[str]:
    """Return the settings by which this machine's apt reaches and trusts its mirror."""
    wanted = re.compile(r"Acquire::(https?::Proxy|Check-Valid-Until)\b")
    lines = run("apt-config", "dump").splitlines()
    return [line for line in lines if wanted.match(line)]


def package_files(distribution: Distribution, sources: list[str], apt: Path) -> list[str] | None:
    """List the name and digest of every package to install; None if the mirror does not answer."""
    for folder in ("state/lists/partial", "cache/archives/partial", "etc/preferences.d"):
        (apt / folder).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "sources.list").write_text("".join(f"{line}\n" for line in sources))
    settings = {
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",  # or apt cannot enter a private folder
        "Dir::Cache": apt / "cache",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": apt / "etc/preferences.d",
        "Dir::Etc::SourceList": apt / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": apt / "state",
        "Dir::State::Status": apt / "status",
        "APT::Update::Error-Mode": "any",
    }
    get = ["apt-get", *(f"-o{name}={value}" for name, value in settings.items()), "-qq"]
    if subprocess.run([*get, "update"], check=False, capture_output=True).returncode:
        return None
    names = ["?essential", "?priority(required)", *distribution.packages]
    lines = run(*get, "install", "--print-uris", *names).splitlines()
    return sorted(" ".join(line.split()[1::2]) for line in lines if line.startswith("'"))


def stamp_of(debs: list[str]) -> str:
    """Return a digest of everything that goes into an image."""
    digest = hashlib.sha256("\n".join(debs).encode())
    for path in sorted([*HERE.glob("*.py"), *FILES.rglob("*")]):
        if path.is_file():
            digest.update(f"\0{path.relative_to(HERE)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


# --- this machine -------------------------------------------------------------------------------


def install_host_tools() -> None:
    """Install the tools that are missing; without root, say which packages they are in."""
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = {package for tool, package in HOST_TOOLS.items() if not shutil.which(tool)}
    if not bootloader.GRUB.is_dir():
        missing.add("grub-pc-bin")
    if not KEYRING.exists():
        missing.add("debian-archive-keyring")
    if not missing:
        return
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *sorted(missing)]
    if os.geteuid() != 0:
        sys.exit(f"guest: host tools are missing; as root, run: {' '.join(command)}")
    say(f"installing {' '.join(sorted(missing))}")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    run("apt-get", "update", "-qq")
    run(*command)


def import_image(disk: Path, name: str) -> None:
    run(str(ROOT / ".venv/bin/livevirt"), "image", "import", str(disk), "--name", name)
    say(f"imported as {name}")


def remove(directory: Path) -> None:
    """Remove a directory, including files that another build left without permissions."""
    if directory.exists():
        run("rm", "-rf", str(directory))


if __name__ == "__main__":
    main()
