"""The cgroups in which a kubelet runs the containers of a pod; they are read, never changed.

The kubelet's hierarchy is found by the pod's uid, because its root, its driver (`cgroupfs` or
`systemd`) and the pod's quality of service all change the path.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from livevirt.node.cgroups import Hierarchy
from livevirt.node.intent import CgroupDir

_DEEPEST = 8  # levels between the root of a hierarchy and a pod


def find(hierarchies: Iterable[Hierarchy], uid: str, container: str) -> tuple[CgroupDir, ...]:
    """Return the cgroups of a container, by the ids of its pod and its own; none if it is gone."""
    found, pods = [], dict[str, str]()
    for hierarchy in hierarchies:
        mount = hierarchy.mount
        if mount not in pods:
            pods[mount] = _pod(mount, uid)
        path = _container(pods[mount], container) if pods[mount] else ""
        if path:
            found.append(CgroupDir(path, hierarchy.controllers, hierarchy.version))
    return tuple(found)


def is_pod(name: str, uid: str) -> bool:
    """Return whether a cgroup of that name is the pod's, under either driver of the kubelet."""
    return name == f"pod{uid}" or name.endswith(f"-pod{uid.replace('-', '_')}.slice")


def _pod(mount: str, uid: str) -> str:
    """Return the path of a pod's cgroup below a mount, searched level by level."""
    level = [mount]
    for _ in range(_DEEPEST):
        below = []
        for folder in level:
            for name in _directories(folder):
                if is_pod(name, uid):
                    return f"{folder}/{name}"
                if not name.startswith("pod") and "-pod" not in name:  # another pod
                    below.append(f"{folder}/{name}")
        level = below
    return ""


def _container(pod: str, id: str) -> str:
    return next((f"{pod}/{name}" for name in _directories(pod) if id in name), "")


def _directories(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from [each.name for each in entries if each.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return  # it went away meanwhile
