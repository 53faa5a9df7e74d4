"""A guest that goes elsewhere: which machine takes it as it is now."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.node.domain import drive
from livevirt.node.start import Starter
from livevirt.node.volumes import Prepared, VolumeProblem
from livevirt.qemu import block_nodes
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.machine import Machine, Thread
from livevirt.qemu.migration import Undescribed
from livevirt.qemu.observe import CpuSlot, Drive, MemoryState, Observed
from livevirt.vm.volumes.volume_lists import claim_of

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


async def described(vmi: Object, claims: Claims, now: Image, *more: Drive) -> Machine:
    """Return what is said of the guest of an instance whose drive has that image."""
    root = Drive(ROOT.id, replace(ROOT, image=now).node)
    slots = (CpuSlot(Thread(0, 0, 0), "max", True),)
    observed = Observed("running", slots, MemoryState(2**20), drives=(root, *more))

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
    parts: Any = (None, claims, None)
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


DATA = {"name": "data", "disk": {"bus": "scsi"}}


def with_data(**settings: Any) -> Object:
    """Return an instance with a disk that came since its start."""
    vmi = a_vmi("old")
    vmi["spec"]["domain"]["devices"]["disks"].append(DATA | settings)
    claim = {"claimName": "new", "hotpluggable": True}
    vmi["spec"]["volumes"].append({"name": "data", "persistentVolumeClaim": claim})
    return vmi


def plugged(**settings: Any) -> Drive:
    """Return the drive that such a disk has become."""
    made = drive(DATA | settings, Prepared(NEW), hot=True)
    return Drive(made.id, made.node, lun=0)


async def test_a_disk_that_came_later_is_as_the_instance_says() -> None:
    found = await described(
        with_data(serial="s"), Claims(new=Prepared(NEW)), OLD, plugged(serial="s")
    )
    assert found.disks[1].serial == "s"


async def test_a_disk_that_the_instance_wants_otherwise_by_now_cannot_be_described() -> None:
    """On its way it would become another under the guest's hands."""
    claims = Claims(new=Prepared(NEW))
    with pytest.raises(Undescribed, match="drive ua-data is not as its instance wants it"):
        await described(with_data(disk={"bus": "scsi", "readonly": True}), claims, OLD, plugged())
    read_only = Claims(new=Prepared(NEW, readonly=True))
    with pytest.raises(Undescribed, match="drive ua-data is not as its instance wants it"):
        await described(with_data(), read_only, OLD, plugged())


async def test_a_disk_that_an_earlier_version_attached_is_as_the_instance_says() -> None:
    before = Drive("ua-data", Disk(id="ua-data", image=NEW).node, lun=0)
    found = await described(with_data(serial="s"), Claims(new=Prepared(NEW)), OLD, before)
    assert (found.disks[1].serial, found.disks[1].node) == ("s", before.node)


async def test_a_disk_whose_place_in_the_boot_order_is_taken_moves_without_one() -> None:
    settings = {"bootOrder": ROOT.boot_index}
    found = await described(
        with_data(**settings), Claims(new=Prepared(NEW)), OLD, plugged(**settings)
    )
    assert [disk.boot_index for disk in found.disks] == [ROOT.boot_index, None]


# ------------------------------------------------------------ what a guest starts with


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the paths of images that another QEMU has."""
    found: set[str] = set()
    monkeypatch.setattr(block_nodes, "image_taken", lambda disk: disk.image.path in found)
    return found


async def left_out(vmi: Object) -> tuple[list[str], list[str]]:
    """Return the volumes a guest starts with, and those whose devices are let go."""
    prepared = {"root": Prepared(OLD), "data": Prepared(NEW)}
    released: list[Prepared] = []

    async def holders(*_: str) -> list[str]:
        return ["db"]

    volumes: Any = SimpleNamespace(release=released.append, holders=holders)
    parts: Any = (None, volumes, None)
    await Starter("node01", *parts)._leave_out(vmi, prepared)
    return list(prepared), [each.image.path for each in released]


async def test_given_a_hot_disk_that_another_guest_has_then_it_comes_later(taken: set[str]) -> None:
    vmi = with_data() | {"metadata": {"namespace": "default", "uid": "u"}}
    assert await left_out(vmi) == (["root", "data"], [])
    taken.add(NEW.path)
    assert await left_out(vmi) == (["root"], [NEW.path])


async def test_given_one_on_a_bus_that_takes_no_more_then_the_start_waits(taken: set[str]) -> None:
    vmi = with_data(disk={"bus": "sata"}) | {"metadata": {"namespace": "default", "uid": "u"}}
    assert await left_out(vmi) == (["root", "data"], [])
    taken.add(NEW.path)
    with pytest.raises(VolumeProblem, match="PVC new is in use by VMI db") as refused:
        await left_out(vmi)
    assert refused.value.reason == "ClaimInUse"


async def test_given_two_disks_of_one_claim_then_the_one_that_can_comes_later(
    taken: set[str],
) -> None:
    vmi = with_data() | {"metadata": {"namespace": "default", "uid": "u"}}
    vmi["spec"]["volumes"][1]["persistentVolumeClaim"]["claimName"] = "old"
    assert await left_out(vmi) == (["root"], []), "its device is the other's too"
