"""A guest that goes elsewhere: which machine takes it as it is now."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.api.request import Object
from livevirt.node.start import Starter
from livevirt.node.volumes import Prepared, VolumeProblem
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.machine import Machine, Thread
from livevirt.qemu.migration import Undescribed
from livevirt.qemu.observe import CpuSlot, Drive, MemoryState, Observed
from livevirt.rollout.volume_lists import claim_of

from .moving_qemu import MACHINE

OLD, NEW = (Image(f"/volumes/{claim}/disk.img") for claim in ("old", "new"))
ROOT = Disk(id="ua-root", image=OLD, boot_index=101, serial="first", io_thread="io1")
STARTED = replace(MACHINE, disks=(ROOT,), io_threads=("io0", "io1"))


class Claims:
    """The claims of a node, by name; remembers which were asked for."""

    def __init__(self, **images: Prepared) -> None:
        self.images = images
        self.asked: list[str] = []

    async def attachable(self, namespace: str, volume: Object) -> Prepared:
        self.asked.append(name := claim_of(volume))
        if name not in self.images:
            raise VolumeProblem("FailedPvcNotFound", f"PVC {name} not found")
        return self.images[name]


def a_vmi(claim: str, **status: Any) -> Object:
    """Return an instance that boots from a claim which cannot come and go."""
    disk = {"name": "root", "disk": {"bus": "virtio"}, "serial": "first"}
    return {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "domain": {"devices": {"disks": [disk]}},
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": claim}}],
        },
        "status": status,
    }


async def described(vmi: Object, claims: Claims, now: Image) -> Machine:
    """Return what is said of the guest of an instance whose drive has that image."""
    drive = Drive(ROOT.id, replace(ROOT, image=now).node)
    slots = (CpuSlot(Thread(0, 0, 0), "max", True),)
    observed = Observed("running", slots, MemoryState(2**20), drives=(drive,))

    async def refresh() -> None: ...

    async def execute(command: str, arguments: Any = None) -> str:
        assert command == "human-monitor-command"
        return ""

    guest: Any = SimpleNamespace(
        intent=SimpleNamespace(machine=STARTED),
        view=SimpleNamespace(observed=observed),
        qmp=lambda: SimpleNamespace(execute=execute),
        refresh=refresh,
    )
    parts: Any = (None, claims, None, None)
    return await Starter("node01", *parts).described(guest, vmi)


async def test_a_volume_that_was_copied_live_is_what_the_same_drive_has_now() -> None:
    claims = Claims(new=Prepared(NEW, direct=True, discard=False))
    found = await described(a_vmi("new"), claims, NEW)
    assert found.disks == (replace(ROOT, image=NEW, cache="none", discard=False),)


async def test_so_it_is_before_the_instance_says_that_the_copy_is_done() -> None:
    copied = {
        "volumeName": "root",
        "sourcePVCInfo": {"claimName": "old"},
        "destinationPVCInfo": {"claimName": "new"},
    }
    found = await described(a_vmi("new", migratedVolumes=[copied]), Claims(new=Prepared(NEW)), NEW)
    assert found.disks == (replace(ROOT, image=NEW),)


async def test_a_drive_as_it_was_at_the_start_needs_no_claim() -> None:
    claims = Claims()
    found = await described(a_vmi("old"), claims, OLD)
    assert (found.disks, claims.asked) == ((ROOT,), [])


async def test_an_image_that_the_instance_does_not_name_cannot_be_described() -> None:
    with pytest.raises(Undescribed, match="drive ua-root"):
        await described(a_vmi("old"), Claims(old=Prepared(OLD)), NEW)
