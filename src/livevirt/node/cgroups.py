"""One cgroup per pod: CPU share and quota, memory limit, CPUs, and which processes are in it.

Version 1 and 2 are chosen for each controller, because hybrid hosts mount version 2 without the
controllers we need. Pods go below the cgroup we were started in, never out of it; only where the
kernel forbids that (version 2 allows no processes next to child groups that have controllers) do
they go below the root of the hierarchy, as a kubelet's do.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from livevirt.node.intent import CgroupDir, Limits

CONTROLLERS = ("cpu", "memory")
CPUSET = "cpuset"  # apart from the others: a host without it confines pods all the same
PERIOD = 100_000  # microseconds over which a CPU quota counts
_MIN_QUOTA = 1_000
_MIN_SHARES, _MAX_SHARES = 2, 262_144
_NO_LIMIT = 1 << 62  # version 1 writes "unlimited" as the largest number of whole pages
_FOLDER = "livevirt"
_CPUS, _MEMORY_NODES = "cpuset.cpus", "cpuset.mems"
_EFFECTIVE = {1: "cpuset.effective_cpus", 2: "cpuset.cpus.effective"}


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where a controller is mounted and which group in it we are in."""

    controllers: tuple[str, ...]
    version: int
    mount: str
    own: str  # below the mount; "" is the mount itself


# ---------------------------------------------------------------- pure


def shares(milli: int) -> int:
    """Return version 1's CPU weight of a request, as a kubelet computes it."""
    return min(max(milli * 1024 // 1000, _MIN_SHARES), _MAX_SHARES)


def weight(milli: int) -> int:
    """Return version 2's CPU weight of a request, as a kubelet computes it."""
    return 1 + (shares(milli) - _MIN_SHARES) * 9999 // (_MAX_SHARES - _MIN_SHARES)


def quota(milli: int) -> int:
    """Return how many microseconds of each period a CPU limit allows."""
    return max(milli * PERIOD // 1000, _MIN_QUOTA)


def settings(version: int, limits: Limits) -> dict[str, list[tuple[str, str]]]:
    """List, by controller, the files to write for these limits."""
    cpu, memory = limits.cpu_limit, limits.memory_limit
    if version == 2:
        return {
            "cpu": [
                ("cpu.weight", str(weight(limits.cpu_request))),
                ("cpu.max", f"{'max' if cpu is None else quota(cpu)} {PERIOD}"),
            ],
            "memory": [("memory.max", "max" if memory is None else str(memory))],
        }
    return {
        "cpu": [
            ("cpu.shares", str(shares(limits.cpu_request))),
            ("cpu.cfs_period_us", str(PERIOD)),
            ("cpu.cfs_quota_us", "-1" if cpu is None else str(quota(cpu))),
        ],
        "memory": [("memory.limit_in_bytes", "-1" if memory is None else str(memory))],
    }


def cpu_list(text: str) -> list[int]:
    """Read the kernel's way of writing CPUs, such as `0-2,5`."""
    found: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
    return found


def hierarchies(mountinfo: str, own: str) -> list[Hierarchy]:
    """Find our controllers in the text of /proc/self/mountinfo and /proc/self/cgroup."""
    groups: dict[str, str] = {}
    for line in own.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(",") if names else ["unified"]:
            groups[name] = path
    found: list[Hierarchy] = []
    cpuset: Hierarchy | None = None
    missing = list(CONTROLLERS)
    unified: tuple[str, str] | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        root, mount = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup2" and "unified" in groups:
            unified = (mount, _below(root, groups["unified"]))
        elif kind == "cgroup":
            here = tuple(name for name in missing if name in options.split(","))
            if here:
                found.append(Hierarchy(here, 1, mount, _below(root, groups[here[0]])))
                missing = [name for name in missing if name not in here]
            if CPUSET in options.split(","):
                cpuset = Hierarchy((CPUSET,), 1, mount, _below(root, groups[CPUSET]))
    if missing and unified is not None:
        found.append(Hierarchy(tuple(missing), 2, *unified))
    if cpuset is None and unified is not None:
        cpuset = Hierarchy((CPUSET,), 2, *unified)
    return [*found, cpuset] if cpuset is not None else found


def _below(root: str, path: str) -> str:
    """Return a group's path as seen below a mount that may show only a part of the hierarchy."""
    if root != "/" and (path == root or path.startswith(f"{root}/")):
        path = path.removeprefix(root)
    return path.strip("/")


# ---------------------------------------------------------------- files


def discover() -> list[Hierarchy]:
    """Return the hierarchies that this process sees."""
    own = Path("/proc/self/cgroup").read_text()
    return hierarchies(Path("/proc/self/mountinfo").read_text(), own)


class PodCgroup:
    """The cgroup of one pod, in every hierarchy that has a controller of ours."""

    def __init__(self, dirs: Iterable[CgroupDir]) -> None:
        self.dirs = tuple(dirs)

    @property
    def procs(self) -> list[str]:
        """The files by which a process enters."""
        return [f"{folder.path}/cgroup.procs" for folder in self.dirs]

    def apply(self, limits: Limits) -> None:
        """Put the limits in force; raises OSError if the kernel refuses one."""
        for folder in self.dirs:
            files = settings(folder.version, limits)
            for name, value in (one for each in folder.controllers for one in files.get(each, ())):
                Path(folder.path, name).write_text(value)

    @property
    def has_cpuset(self) -> bool:
        """Whether its processes can be kept to some CPUs."""
        return any(CPUSET in folder.controllers for folder in self.dirs)

    def set_cpus(self, cpus: Sequence[int]) -> None:
        """Keep its processes to these CPUs; raises OSError if the kernel refuses."""
        if not self.has_cpuset:
            raise OSError(errno.ENOTSUP, "a pod has no cpuset, so it cannot be kept off CPUs")
        for folder in self.dirs:
            if CPUSET in folder.controllers:
                Path(folder.path, _CPUS).write_text(",".join(map(str, cpus)))
                # Version 2 takes any list, and uses the group's above if nothing of it is there.
                with contextlib.suppress(FileNotFoundError):
                    got = cpu_list(Path(folder.path, _EFFECTIVE[folder.version]).read_text())
                    if not got or not set(got) <= set(cpus):
                        raise OSError(errno.EINVAL, f"asked for CPUs {cpus}, got {got}")

    def in_force(self) -> Limits:
        """Read back the limits that the kernel keeps; requests are only a weight there."""
        cpu = memory = None
        for folder in self.dirs:
            if "cpu" in folder.controllers:
                cpu = _cpu_limit(folder)
            if "memory" in folder.controllers:
                name = "memory.max" if folder.version == 2 else "memory.limit_in_bytes"
                memory = _amount(Path(folder.path, name).read_text())
        return Limits(cpu_limit=cpu, memory_limit=memory)

    def memory_used(self) -> int:
        """Return how much memory the pod has, or 0 if it is not counted."""
        for folder in self.dirs:
            if "memory" in folder.controllers:
                name = "memory.current" if folder.version == 2 else "memory.usage_in_bytes"
                with contextlib.suppress(OSError):
                    return int(Path(folder.path, name).read_text())
        return 0

    def pids(self) -> list[int]:
        """Return the processes in it."""
        found: dict[int, None] = {}
        for file in self.procs:
            with contextlib.suppress(OSError):
                found |= dict.fromkeys(int(line) for line in Path(file).read_text().split())
        return list(found)

    def oom_killed(self) -> bool:
        """Whether the kernel killed a process in it for want of memory."""
        for folder in self.dirs:
            if "memory" in folder.controllers:
                name = "memory.events" if folder.version == 2 else "memory.oom_control"
                with contextlib.suppress(OSError):
                    said = dict(
                        line.split() for line in Path(folder.path, name).read_text().splitlines()
                    )
                    return int(said.get("oom_kill", 0)) > 0
        return False

    def remove(self) -> None:
        """Remove it, and the folders above that this leaves empty; nothing may run in it."""
        for folder in self.dirs:
            path = Path(folder.path)
            with contextlib.suppress(FileNotFoundError):
                path.rmdir()
            for above in path.parents[:2]:  # the node's, and ours
                try:
                    above.rmdir()
                except OSError:
                    break  # others are in there


def _cpu_limit(folder: CgroupDir) -> int | None:
    if folder.version == 2:
        allowed, period = Path(folder.path, "cpu.max").read_text().split()
    else:
        allowed = Path(folder.path, "cpu.cfs_quota_us").read_text().strip()
        period = Path(folder.path, "cpu.cfs_period_us").read_text()
    if allowed in ("max", "-1"):
        return None
    return int(allowed) * 1000 // int(period)


def _amount(text: str) -> int | None:
    text = text.strip()
    if text == "max" or int(text) >= _NO_LIMIT:
        return None
    return int(text)


class Cgroups:
    """Makes the pods' cgroups of one node.

    `problem` is why pods are not confined, if so; `cpuset_problem` why none can have dedicated
    CPUs.
    """

    def __init__(self, node: str, found: Iterable[Hierarchy], cpu: int = 1000) -> None:
        self._node = node
        self._cpu = cpu  # thousandths the node has
        self._bases: list[tuple[Hierarchy, str]] = []
        wrong: dict[tuple[str, ...], str] = {}
        mounted: set[str] = set()
        for hierarchy in found:
            mounted |= set(hierarchy.controllers)
            try:
                self._bases.append((hierarchy, self._base(hierarchy)))
            except OSError as error:
                wrong[hierarchy.controllers] = str(error)
        missing = [name for name in (*CONTROLLERS, CPUSET) if name not in mounted]
        wrong |= {(name,): "no such controller" for name in missing}
        problems = {names: f"{'/'.join(names)}: {what}" for names, what in wrong.items()}
        self.cpuset_problem = problems.pop((CPUSET,), "")
        self.problem = "; ".join(problems.values())

    @classmethod
    def discover(cls, node: str, cpu: int) -> Cgroups:
        """Look at what this process sees; the node has so many thousandths of a CPU."""
        return cls(node, discover(), cpu)

    def _base(self, hierarchy: Hierarchy) -> str:
        """Return the group to make ours in; raises OSError if there is none."""
        for other, base in self._bases:
            if hierarchy.version == other.version == 2:  # a process is in one group of it
                return _delegating(base, hierarchy.controllers)
        return _base(hierarchy)

    def of(self, uid: str) -> PodCgroup:
        """Return the pod's cgroup; it is not made yet."""
        return PodCgroup(
            CgroupDir(f"{base}/{_FOLDER}/{self._node}/pod{uid}", hierarchy.controllers,
                      hierarchy.version)
            for hierarchy, base in self._bases
        )  # fmt: skip

    def create(self, pod: PodCgroup) -> None:
        """Make a pod's cgroup; all pods together weigh as much as the CPUs they may use."""
        machine = (os.cpu_count() or 1) * 1000
        for folder in pod.dirs:
            if folder.version == 2:
                _delegating(str(Path(folder.path).parents[2]), folder.controllers, self._node)
            os.makedirs(folder.path, exist_ok=True)
            if CPUSET in folder.controllers and folder.version == 1:
                _inherit_cpuset(Path(folder.path))
            if "cpu" in folder.controllers:
                node, ours = Path(folder.path).parents[:2]
                _weigh(node, folder.version, self._cpu)
                _weigh(ours, folder.version, machine)


def _inherit_cpuset(pod: Path) -> None:
    """Fill in a new group and those above it: version 1 lets no process into an empty one."""
    for folder in (*reversed(pod.parents[:2]), pod):
        for name in (_MEMORY_NODES, _CPUS):
            if not (folder / name).read_text().strip():
                (folder / name).write_text((folder.parent / name).read_text())


def _weigh(folder: Path, version: int, cpu: int) -> None:
    if version == 2:
        (folder / "cpu.weight").write_text(str(weight(cpu)))
    else:
        (folder / "cpu.shares").write_text(str(shares(cpu)))


def _base(hierarchy: Hierarchy) -> str:
    """Return the group to make ours in, having tried; raises OSError if there is none."""
    own = os.path.join(hierarchy.mount, hierarchy.own).rstrip("/")
    if hierarchy.version == 1:
        _try(own)
        return own
    try:
        return _delegating(own, hierarchy.controllers)
    except OSError:
        if own == hierarchy.mount:
            raise
        return _delegating(hierarchy.mount, hierarchy.controllers)


def _delegating(base: str, controllers: tuple[str, ...], *below: str) -> str:
    """Have the children of our groups get the controllers; return the base."""
    folders = [base, f"{base}/{_FOLDER}", *(f"{base}/{_FOLDER}/{name}" for name in below)]
    for folder in folders:
        os.makedirs(folder, exist_ok=True)
        control = Path(folder, "cgroup.subtree_control")
        enabled = control.read_text().split()
        for name in controllers:
            if name not in enabled:
                control.write_text(f"+{name}")
    return base


def _try(base: str) -> None:
    probe = f"{base}/{_FOLDER}"
    os.makedirs(probe, exist_ok=True)
    with contextlib.suppress(OSError):
        os.rmdir(probe)  # made again with the first pod
