"""Two releases of livevirt: that of this tree, and an older one made from it.

The older one differs in what matters to an upgrade: its version, its image, and instance types and
preferences that it stores in v1beta1.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from livevirt import __version__

from .cluster import ROOT, KubernetesCluster, tool
from .component import environment, program

OLDER = "0.0.1"
IMAGES = ROOT / ".cache" / "image"
PACKAGE = "/opt/livevirt/lib/python3.11/site-packages/livevirt"


@dataclass(frozen=True)
class Release:
    """A release that can be installed."""

    version: str
    sources: Path

    @property
    def image(self) -> str:
        return f"localhost/livevirt:{self.version}"

    def livevirt(
        self, cluster: KubernetesCluster, command: str, *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a `livevirt` command of this release on a cluster."""
        return subprocess.run(
            [*program("livevirt"), command, "--kubeconfig", cluster.kubeconfig, *arguments],
            capture_output=True, text=True, timeout=500,
            env=environment() | {"PYTHONPATH": str(self.sources)},
        )  # fmt: skip

    def install(self, cluster: KubernetesCluster) -> str:
        """Install it, or replace another release, and return what is reported."""
        done = self.livevirt(
            cluster, "install", "--replicas", "1", "--no-catalog", "--timeout", "200"
        )
        pods = ("get", "pods", "-n", "kubevirt", "-o", "wide")
        assert done.returncode == 0, done.stderr + cluster.run_kubectl(*pods).stdout
        return done.stderr


CURRENT = Release(__version__, ROOT / "src")


def load_current(cluster: KubernetesCluster) -> None:
    """Build the image of this tree and load it into the nodes of a cluster."""
    subprocess.run([ROOT / "tools" / "image" / "build.py"], check=True, timeout=900)
    _load(cluster, IMAGES / "livevirt.tar")


def load_older(cluster: KubernetesCluster, directory: Path) -> Release:
    """Make the older release, and load its image into the nodes of a cluster."""
    sources = directory / "src"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", sources, ignore=ignore)
    package = sources / "livevirt"
    _replace(package / "__init__.py", r'__version__ = ".*"', f'__version__ = "{OLDER}"')
    _replace(package / "vm/kinds/__init__.py", r'storage="v1beta2"', 'storage="v1beta1"')
    release = Release(OLDER, sources)
    archive = directory / "image.tar"
    container = _buildah("from", "--pull-never", CURRENT.image)
    try:
        _buildah("copy", "--quiet", container, str(package), PACKAGE)
        _buildah("commit", "--quiet", container, release.image)
        _buildah("push", "--quiet", release.image, f"docker-archive:{archive}:{release.image}")
    finally:
        _buildah("rm", container)
    _load(cluster, archive)
    archive.unlink()
    return release


def _replace(path: Path, pattern: str, text: str) -> None:
    changed, count = re.subn(pattern, text, path.read_text())
    assert count == 1, path
    path.write_text(changed)


def _buildah(*arguments: str) -> str:
    storage = (f"--root={IMAGES / 'storage'}", f"--runroot={IMAGES / 'run'}")
    done = subprocess.run(
        ["buildah", *storage, *arguments], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _load(cluster: KubernetesCluster, archive: Path) -> None:
    loaded = tool("load-image", str(archive), "--name", cluster.name)
    assert loaded.returncode == 0, loaded.stderr
