"""Find the programs a cluster runs: given by the user, from Debian packages, or built by us."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from build import helper_program, kubernetes_directory
from host import CACHE, ClusterError, locked, run, say
from image import Image, write_archive

PACKAGES = ("containerd", "runc", "containernetworking-plugins", "nftables", "busybox-static")
RUNTIME_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "nft", "busybox")
CNI_DIRECTORIES = ("/usr/lib/cni", "/opt/cni/bin")
CNI_PLUGINS = ("ptp", "host-local", "loopback")
PAUSE_IMAGE = "registry.k8s.io/pause:3.10"
BUSYBOX_IMAGE = "localhost/busybox:1"


@dataclass(frozen=True)
class Runtime:
    """Where the container runtime's programs and libraries are."""

    search_path: str
    library_path: str
    cni: Path

    def find(self, program: str) -> str:
        """Return the path of a program of the runtime."""
        found = shutil.which(program, path=self.search_path)
        if found is None:
            raise ClusterError(f"{program} is missing; apt-get install {' '.join(PACKAGES)}")
        return found

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment in which the runtime's programs find each other."""
        return {**os.environ, "PATH": self.search_path, "LD_LIBRARY_PATH": self.library_path}


def kubernetes_programs(components: Iterable[str]) -> dict[str, Path]:
    """Return the path of each component.

    A complete set in `KUBEBUILDER_ASSETS` and `PATH` is used as it is. If only a part of it is
    given, `KUBEBUILDER_ASSETS` still wins over what we build, but `PATH` does not: its programs
    may be of any version.
    """
    components = list(components)
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    given = {name: shutil.which(name, path=assets) if assets else None for name in components}
    complete = {name: given[name] or shutil.which(name) for name in components}
    if all(complete.values()):
        say(f"using existing binaries: {', '.join(str(path) for path in complete.values())}")
        return {name: Path(path) for name, path in complete.items() if path}
    built = kubernetes_directory()
    for path in given.values():
        if path:
            say(f"using {path}; missing components are built, so their version may differ")
    return {name: Path(given[name] or built / name) for name in components}


def container_runtime() -> Runtime:
    """Return the container runtime: the machine's own, or Debian's packages unpacked in the cache.

    Packages are unpacked rather than installed, because installing containerd starts a service.
    """
    unpacked = CACHE / "debian"
    system = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    if not _complete(system, [Path(directory) for directory in CNI_DIRECTORIES]):
        with locked(CACHE / "debian.lock"):
            if not unpacked.exists():
                _unpack_packages(unpacked)
    programs = [str(unpacked / part) for part in ("usr/bin", "usr/sbin", "bin", "sbin")]
    triplet = f"{os.uname().machine}-linux-gnu"
    libraries = [str(unpacked / part / triplet) for part in ("usr/lib", "lib")]
    plugins = [unpacked / "usr/lib/cni", *(Path(directory) for directory in CNI_DIRECTORIES)]
    return Runtime(
        search_path=":".join([*programs, system]),
        library_path=":".join(libraries),
        cni=next((path for path in plugins if (path / "ptp").exists()), plugins[0]),
    )


def base_images(runtime: Runtime) -> Path:
    """Return an archive of the images every node gets: the pod sandbox, and busybox for tests."""
    helper = helper_program()
    archive = helper.with_name("images.tar")
    with locked(CACHE / "images.lock"):
        if not archive.exists():
            busybox = runtime.find("busybox")
            applets = run([busybox, "--list"]).split()
            links = {f"bin/{applet}": "busybox" for applet in applets if applet != "busybox"}
            write_archive(
                archive,
                [
                    Image(PAUSE_IMAGE, {"pause": helper}, command=("/pause",)),
                    Image(BUSYBOX_IMAGE, {"bin/busybox": Path(busybox)}, links, ("/bin/sh",)),
                ],
            )
    return archive


def _complete(search_path: str, plugin_directories: list[Path]) -> bool:
    programs = all(shutil.which(program, path=search_path) for program in RUNTIME_PROGRAMS)
    return programs and any(
        all((directory / plugin).exists() for plugin in CNI_PLUGINS)
        for directory in plugin_directories
    )


def _unpack_packages(target: Path) -> None:
    if not shutil.which("apt-get"):
        raise ClusterError(f"install {', '.join(RUNTIME_PROGRAMS)} and the CNI plugins")
    say(f"unpacking {', '.join(PACKAGES)} from Debian")
    if not any(Path("/var/lib/apt/lists").glob("*_Packages*")):
        run(["apt-get", "update", "-qq"])
    downloads = target.with_name("debian-archives")
    (downloads / "partial").mkdir(parents=True, exist_ok=True)
    command = ["apt-get", "install", "-qq", "-y", "--download-only", "--reinstall"]
    options = ["--no-install-recommends", "-o", f"Dir::Cache::archives={downloads}"]
    run([*command, *options, *PACKAGES])
    unfinished = target.with_name("debian.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for package in sorted(downloads.glob("*.deb")):
        run(["dpkg-deb", "--extract", package, unfinished])
    unfinished.rename(target)
    shutil.rmtree(downloads)
