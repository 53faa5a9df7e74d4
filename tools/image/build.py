#!/usr/bin/env python3
"""Build livevirt's container image from `Containerfile` with buildah.

    tools/image/build.py                             # localhost/livevirt:VERSION
    tools/image/build.py --tag example.org/livevirt:1.2.3
    tools/image/build.py --base docker.io/library/debian:12-slim

The image is also written as a docker archive, which `tools/cluster load-image`, `podman load` and
`docker load` read. buildah isolates by chroot and keeps its storage in the output folder, so
nothing else on this machine changes. Where the base image cannot be pulled, an equivalent one is
made from the packages of the mirror in this machine's apt configuration.

Nothing is built if the sources have not changed since the last build.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OUTPUT = ROOT / ".cache" / "image"
BASE = "docker.io/library/debian:12-slim"
OWN_BASE = "localhost/debian:12-slim"
SUITE = "bookworm"
PULL_SECONDS = 60
PACKAGE_FILES = ("pyproject.toml", "README.md", "LICENSE")
LAUNCHER = Path("launcher", "launcher.c")
# Host tool -> the Debian package that has it.
HOST_TOOLS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}


def main() -> None:
    """Build the image named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tag", default=f"localhost/livevirt:{version()}")
    parser.add_argument("--base", help=f"base image (default: {BASE}, or an equivalent)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of archive and storage")
    options = parser.parse_args()
    output: Path = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    archive, stamp = output / "livevirt.tar", output / "stamp"
    sources = digest(options.tag, options.base or "")
    if archive.exists() and stamp.exists() and stamp.read_text() == sources:
        say(f"up to date: {archive}")
        return
    install_host_tools()
    builder = Builder(output)
    context = make_context(output)
    base = options.base or builder.base_image()
    say(f"building {options.tag}")
    builder.build(context, base, options.tag)
    unfinished = output / "livevirt.tar.part"
    unfinished.unlink(missing_ok=True)
    builder.run("push", "--quiet", options.tag, f"docker-archive:{unfinished}:{options.tag}")
    unfinished.rename(archive)
    stamp.write_text(sources)
    say(f"done: {archive} ({archive.stat().st_size >> 20} MiB)")


class Builder:
    """buildah with its storage in the output folder."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._storage = [f"--root={output / 'storage'}", f"--runroot={output / 'run'}"]

    def run(self, command: str, *arguments: str) -> None:
        """Run a buildah command; its failure ends the build."""
        run("buildah", *self._storage, command, *arguments)

    def base_image(self) -> str:
        """Return the base image, pulled or made from packages."""
        for image in (BASE, OWN_BASE):
            if self._succeeds("inspect", "--type=image", image):
                return image
        say(f"pulling {BASE}")
        if self._succeeds("pull", "--quiet", BASE):
            return BASE
        say(f"{BASE} cannot be pulled: making an equivalent from Debian's packages")
        folder = self._output / "base"
        folder.mkdir(exist_ok=True)
        tar = folder / "rootfs.tar"
        run("mmdebstrap", "--quiet", "--variant=minbase", SUITE, str(tar))
        containerfile = folder / "Containerfile"
        containerfile.write_text("FROM scratch\nADD rootfs.tar /\n")
        self.run("build", "--quiet", "--isolation=chroot", f"--tag={OWN_BASE}", str(folder))
        shutil.rmtree(folder)
        return OWN_BASE

    def build(self, context: Path, base: str, tag: str) -> None:
        """Build the image of `Containerfile`; unchanged steps come from the last build."""
        self.run(
            "build",
            "--quiet",
            "--isolation=chroot",
            "--layers",
            "--pull-never",
            f"--build-arg=BASE={base}",
            f"--build-arg=VERSION={version()}",
            f"--file={ROOT / 'Containerfile'}",
            f"--tag={tag}",
            str(context),
        )

    def _succeeds(self, command: str, *arguments: str) -> bool:
        words = ["buildah", *self._storage, command, *arguments]
        try:
            done = subprocess.run(words, capture_output=True, timeout=PULL_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def make_context(output: Path) -> Path:
    """Collect what the build copies: locked wheels, livevirt's own wheel and launcher.c."""
    context = output / "context"
    wheels, own = context / "wheels", context / "livevirt"
    wheels.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(own, ignore_errors=True)
    (context / LAUNCHER).parent.mkdir(exist_ok=True)
    shutil.copyfile(ROOT / LAUNCHER, context / LAUNCHER)
    lock = ROOT / "requirements.lock"
    known = context / "requirements.lock"
    if not known.exists() or known.read_bytes() != lock.read_bytes():
        say("downloading the locked Python packages")
        shutil.rmtree(wheels)
        # The image has Debian 12's Python, whatever this machine has.
        target = ["--python-version=3.11", "--implementation=cp", "--only-binary=:all:"]
        where = ["--require-hashes", "-r", str(lock), "--dest", str(wheels)]
        pip("download", *target, *where)
        shutil.copyfile(lock, known)
    say("building livevirt's wheel")
    with tempfile.TemporaryDirectory() as copy:  # a build leaves files beside the sources
        for name in PACKAGE_FILES:
            shutil.copy(ROOT / name, copy)
        leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / "src", Path(copy, "src"), ignore=leave)
        pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(own), copy)
    return context


def pip(command: str, *arguments: str) -> None:
    """Run the project's own pip."""
    python = ROOT / ".venv" / "bin" / "python"
    run(str(python), "-m", "pip", command, "--quiet", "--disable-pip-version-check", *arguments)


def version() -> str:
    """Return the version of the package."""
    text = (ROOT / "src" / "livevirt" / "__init__.py").read_text()
    found = re.search(r'__version__ = "([^"]+)"', text)
    if found is None:
        sys.exit("image: src/livevirt/__init__.py has no __version__")
    return found[1]


def digest(*settings: str) -> str:
    """Return a digest of everything the image is made of."""
    hashed = hashlib.sha256("\0".join(settings).encode())
    other = ("Containerfile", "requirements.lock", LAUNCHER)
    files = [ROOT / name for name in (*other, *PACKAGE_FILES)]
    files += sorted(file for file in (ROOT / "src").rglob("*") if file.is_file())
    for file in [Path(__file__), *files]:
        if "__pycache__" not in file.parts and not file.parent.name.endswith(".egg-info"):
            hashed.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return hashed.hexdigest()


def install_host_tools() -> None:
    """Install the tools that are missing, or name them."""
    missing = [package for tool, package in HOST_TOOLS.items() if shutil.which(tool) is None]
    if not missing:
        return
    if os.geteuid() or shutil.which("apt-get") is None:
        sys.exit(f"image: host tools are missing; install {' and '.join(missing)}")
    say(f"installing {' and '.join(missing)}")
    run("apt-get", "update", "-qq")
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing)


def run(*command: str) -> None:
    """Run a command; if it fails, print the end of its output and stop."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        end = "\n".join(done.stdout.decode(errors="replace").splitlines()[-20:])
        sys.exit(f"image: {' '.join(command[:1])} failed:\n{end}")


def say(message: str) -> None:
    """Print a line of progress."""
    print(f"image: {message}", flush=True)


if __name__ == "__main__":
    main()
