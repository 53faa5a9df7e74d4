"""The cgroups of a container, wherever its kubelet puts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from livevirt.node import container_cgroups
from livevirt.node.cgroups import Hierarchy

UID = "39a984f0-f8f6-4a73-bf08-a65f504e3360"
OTHER = "11111111-f8f6-4a73-bf08-a65f504e3360"
ID = "14d145070d4d"
PLACES = {
    "cgroupfs": f"kubepods/burstable/pod{UID}/{ID}",
    "cgroupfs below a root of its own": f"lab/node-1/kubepods/pod{UID}/{ID}",
    "systemd": (
        "kubepods.slice/kubepods-besteffort.slice/"
        f"kubepods-besteffort-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope"
    ),
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_the_cgroups_of_a_container_are_found_in_every_hierarchy(
    tmp_path: Path, place: str, version: int
) -> None:
    mounts = [tmp_path / name for name in ("cpu", "memory")]
    for mount in mounts:
        (mount / place).mkdir(parents=True)
        (mount / "kubepods" / f"pod{OTHER}" / ID).mkdir(parents=True)
    hierarchies = [Hierarchy((mount.name,), version, str(mount), "") for mount in mounts]
    found = container_cgroups.find(hierarchies, UID, ID)
    assert [(each.path, each.controllers, each.version) for each in found] == [
        (str(mount / place), (mount.name,), version) for mount in mounts
    ]


def test_a_container_that_is_gone_has_none(tmp_path: Path) -> None:
    (tmp_path / "kubepods" / f"pod{UID}" / "another").mkdir(parents=True)
    hierarchy = Hierarchy(("memory",), 2, str(tmp_path), "")
    assert container_cgroups.find([hierarchy], UID, ID) == ()
    assert container_cgroups.find([hierarchy], OTHER, ID) == ()
