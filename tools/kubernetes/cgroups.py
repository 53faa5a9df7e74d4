"""The cgroups below which a cluster's pods run, in both versions of the interface."""

from __future__ import annotations

import os
from pathlib import Path

from host import ClusterError, wait_until

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = (
    "cpu",
    "cpuacct",
    "cpuset",
    "memory",
    "pids",
    "devices",
    "freezer",
    "blkio",
    "systemd",
)


def is_unified() -> bool:
    """Return whether the machine uses cgroup v2 only."""
    return (ROOT / "cgroup.controllers").exists()


def create(path: str) -> None:
    """Create a cgroup such as `livevirt-main/node-1`, ready for a kubelet to use as its root."""
    for hierarchy in _hierarchies():
        cgroup = hierarchy
        for part in path.split("/"):
            parent, cgroup = cgroup, cgroup / part
            if is_unified():
                _enable_controllers(parent)
            cgroup.mkdir(exist_ok=True)
            if hierarchy.name == "cpuset" and not is_unified():
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (cgroup / file).write_text((parent / file).read_text())


def remove(path: str) -> None:
    """Remove a cgroup with all below it, once their processes are gone."""
    left = [hierarchy / path for hierarchy in [ROOT, *ROOT.glob("*/")]]
    left = [cgroup for cgroup in left if cgroup.is_dir()]
    if not wait_until(lambda: all([_removed(cgroup) for cgroup in left]), 10):
        busy = ", ".join(str(cgroup) for cgroup in left if cgroup.exists())
        raise ClusterError(f"cannot remove cgroups that are in use: {busy}")


def _hierarchies() -> list[Path]:
    if is_unified():
        return [ROOT]
    return [ROOT / name for name in CONTROLLERS if (ROOT / name).is_dir()]


def _enable_controllers(cgroup: Path) -> None:
    available = (cgroup / "cgroup.controllers").read_text().split()
    enabled = (cgroup / "cgroup.subtree_control").read_text().split()
    for controller in available:
        if controller not in enabled:
            (cgroup / "cgroup.subtree_control").write_text(f"+{controller}")


def _removed(cgroup: Path) -> bool:
    for directory, _, _ in os.walk(cgroup, topdown=False):
        try:
            os.rmdir(directory)
        except OSError:
            return False
    return True
