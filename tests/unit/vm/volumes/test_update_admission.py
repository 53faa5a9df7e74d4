"""What livevirt itself may change in the volumes of an instance, and in which words it may not."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.kinds import VM, VMI

from ..vm_review import COMPONENT, JANE, LIVE, a_spec, a_vm, a_vmi, review

SCSI, VIRTIO, SATA = {"bus": "scsi"}, {"bus": "virtio"}, {"bus": "sata"}
CLOSED: Object = {**LIVE, "developerConfiguration": {"featureGates": ["VMLiveUpdateFeatures"]}}


def a_claim(name: str, claim: str = "", *, hot: bool = True) -> Object:
    source = {"claimName": claim or name, "hotpluggable": hot}
    return {"name": name, "persistentVolumeClaim": source}


def an_instance() -> Object:
    """Return a running one with a boot disk, a fixed claim, a hot disk and two drives."""
    disks = [
        {"name": "root", "disk": VIRTIO},
        {"name": "fixed", "disk": VIRTIO},
        {"name": "hot", "disk": SCSI},
        {"name": "cd", "cdrom": SATA},
        {"name": "drive", "cdrom": SCSI},
    ]
    volumes = [
        {"name": "root", "containerDisk": {"image": "guest"}},
        a_claim("fixed", hot=False),
        a_claim("hot"),
    ]
    vmi = a_vmi(a_spec(devices={"disks": disks}, volumes=volumes))
    told = [{"name": "root"}, {"name": "fixed"}, {"name": "hot", "hotplugVolume": {}}]
    vmi["status"] = {"phase": "Running", "volumeStatus": told}
    return vmi


class Edit:
    """An instance to be, and the ways in which it can differ."""

    def __init__(self) -> None:
        self.vmi = an_instance()
        self.spec = self.vmi["spec"]
        self.disks: list[Object] = self.spec["domain"]["devices"]["disks"]
        self.volumes: list[Object] = self.spec["volumes"]

    def add(self, volume: Object | None, **disk: Any) -> Edit:
        if volume is not None:
            self.volumes.append(volume)
        if disk:
            self.disks.append({"name": (volume or disk)["name"], **disk})
        return self

    def drop(self, name: str, *, disk: bool = True, volume: bool = True) -> Edit:
        if volume:
            self.volumes[:] = [v for v in self.volumes if v["name"] != name]
        if disk:
            self.disks[:] = [d for d in self.disks if d["name"] != name]
        return self

    def set(self, volume: Object, **disk: Any) -> Edit:
        self.volumes[:] = [volume if v["name"] == volume["name"] else v for v in self.volumes]
        for each in self.disks:
            if each["name"] == volume["name"]:
                each.update(disk)
        return self

    def moves(self, name: str) -> Edit:
        self.vmi["status"]["migratedVolumes"] = [{"volumeName": name}]
        return self


GOOD = {
    "a disk comes on scsi": lambda e: e.add(a_claim("new"), disk=SCSI),
    "a disk comes on virtio": lambda e: e.add(a_claim("new"), disk=VIRTIO),
    "a disk comes with a thread of its own": lambda e: e.add(
        a_claim("new"), disk=VIRTIO, dedicatedIOThread=True),
    "a lun comes": lambda e: e.add(a_claim("new"), lun=SCSI),
    "a DataVolume comes": lambda e: e.add(
        {"name": "new", "dataVolume": {"name": "d", "hotpluggable": True}}, disk=SCSI),
    "a disk goes": lambda e: e.drop("hot"),
    "a disk of the start gets another place in the boot order": lambda e: e.set(
        a_claim("fixed", hot=False), bootOrder=2),
    "a disk gets another claim in one step": lambda e: e.set(a_claim("hot", "other")),
    "and another bus with it": lambda e: e.set(a_claim("hot", "other"), disk=VIRTIO),
    "a disc comes": lambda e: e.add(a_claim("cd", "iso")),
    "a drive comes with its disc": lambda e: e.add(a_claim("new"), cdrom=SCSI),
    "an empty drive comes": lambda e: e.add(None, name="new", cdrom=SCSI),
    "a drive goes": lambda e: e.drop("drive"),
    "what the guest was started with is copied": lambda e: e.set(
        a_claim("fixed", "other", hot=False)).moves("fixed"),
}  # fmt: skip
PREFIX = "Hotplug configuration for"
BAD = {
    "a volume without a disk": (
        lambda e: e.add(a_claim("new")), "mismatch between volumes declared (4) and required (3)"),
    "a disk without a volume": (
        lambda e: e.add(None, name="new", disk=SCSI),
        "mismatch between volumes declared (3) and required (4)"),
    "a volume whose disk is another's": (
        lambda e: e.add(a_claim("new")).add(None, name="odd", disk=SCSI),
        "disk new does not exist"),
    "a disk that goes and leaves its volume": (
        lambda e: e.drop("hot", volume=False).add(None, name="odd", disk=SCSI),
        "volume hot doesn't have a matching disk"),
    "a disk of the start that goes": (
        lambda e: e.drop("fixed"), "Number of permanent volumes has changed"),
    "a disk of the start with another claim": (
        lambda e: e.set(a_claim("fixed", "other", hot=False)), "permanent volume fixed, changed"),
    "a disk of the start that others copy": (
        lambda e: e.set(a_claim("fixed", "other", hot=False)).moves("hot"),
        "permanent volume fixed, changed"),
    "settings of a disk of the start": (
        lambda e: e.set(a_claim("fixed", hot=False), serial="s"), "permanent disk fixed, changed"),
    "a disk of the start on another bus": (
        lambda e: e.set(a_claim("fixed", hot=False), disk=SATA), "permanent disk fixed, changed"),
    "settings of a hot disk": (
        lambda e: e.set(a_claim("hot"), serial="s"), "hotplug disk hot, changed"),
    "an image that is plugged": (
        lambda e: e.add({"name": "new", "containerDisk": {"image": "i"}}, disk=SCSI),
        "volume new is not a PVC or DataVolume"),
    "a disk on sata": (
        lambda e: e.add(a_claim("new"), disk=SATA),
        f"{PREFIX} disk [new] requires bus to be 'scsi' or 'virtio'. [sata] is not permitted."),
    "a disk on no bus": (
        lambda e: e.add(a_claim("new"), disk={}),
        f"{PREFIX} disk [new] requires bus to be 'scsi' or 'virtio'. [] is not permitted."),
    "a lun on virtio": (
        lambda e: e.add(a_claim("new"), lun=VIRTIO),
        f"{PREFIX} LUN [new] requires bus to be 'scsi'. [virtio] is not permitted."),
    "a drive on sata": (
        lambda e: e.add(None, name="new", cdrom=SATA),
        f"{PREFIX} cdrom [new] requires bus to be 'scsi' or 'usb'. [sata] is not permitted."),
    "a drive of sata that goes": (
        lambda e: e.drop("cd"),
        f"{PREFIX} cdrom [cd] requires bus to be 'scsi' or 'usb'. [sata] is not permitted."),
    "a thread for a disk on scsi": (
        lambda e: e.add(a_claim("new"), disk=SCSI, dedicatedIOThread=True),
        f"{PREFIX} [new] requires virtio bus for IOThreads."),
    "a utility volume": (
        lambda e: e.spec.update(utilityVolumes=[{"name": "u", "claimName": "c"}]),
        "utility volumes are not served and cannot be changed"),
}  # fmt: skip


def said(edit: Any, **door: Any) -> list[str]:
    made = Edit()
    edit(made)
    _, errors, _ = review(VMI, made.vmi, an_instance(), **{"user": COMPONENT, **door})
    return [error.message for error in errors]


@pytest.mark.parametrize("edit", GOOD.values(), ids=GOOD)
def test_what_may_change(edit: Any) -> None:
    assert said(edit) == []


@pytest.mark.parametrize(("edit", "message"), BAD.values(), ids=BAD)
def test_what_may_not(edit: Any, message: str) -> None:
    assert said(edit) == [message]


@pytest.mark.parametrize("edit", GOOD.values(), ids=GOOD)
def test_nobody_else_may_change_anything(edit: Any) -> None:
    assert said(edit, user=JANE) == ["update of VMI object is restricted"]


def test_given_nothing_is_told_of_its_volumes_yet_then_all_may_come_and_go() -> None:
    old, new = an_instance(), Edit().drop("fixed").vmi
    for each in (old, new):
        del each["status"]["volumeStatus"]
    assert review(VMI, new, old, user=COMPONENT)[1] == []


# ---------------------------------------------------------------- the gate of empty drives


def a_machine() -> Object:
    disks = [{"name": "cd", "cdrom": SATA}, {"name": "full", "cdrom": SATA}]
    return a_vm(a_spec(devices={"disks": disks}, volumes=[a_claim("full", "iso")]))


def test_given_the_gate_is_closed_then_an_edit_of_something_else_passes() -> None:
    new = a_machine()
    new["spec"]["template"]["spec"]["hostname"] = "other"
    assert review(VM, new, a_machine(), settings=CLOSED)[1] == []


def test_given_the_gate_is_closed_then_a_drive_that_becomes_empty_is_refused() -> None:
    new = a_machine()
    new["spec"]["template"]["spec"]["volumes"] = []
    (error,) = review(VM, new, a_machine(), settings=CLOSED)[1]
    assert error.message.startswith("InjectEjectCDROM feature gate not enabled")
    assert error.field.endswith("disks[1].name")
    assert review(VM, new, a_machine())[1] == []


def test_given_the_gate_is_closed_then_a_new_vm_with_an_empty_drive_is_refused() -> None:
    (error,) = review(VM, a_machine(), settings=CLOSED)[1]
    assert error.message.startswith("InjectEjectCDROM feature gate not enabled")


def test_given_the_gate_is_closed_then_a_vm_that_has_one_starts_all_the_same() -> None:
    vmi = a_vmi(copy.deepcopy(a_machine()["spec"]["template"]["spec"]))
    assert review(VMI, vmi, settings=CLOSED, user=COMPONENT)[1] == []
    assert len(review(VMI, vmi, settings=CLOSED, user=JANE)[1]) == 1
