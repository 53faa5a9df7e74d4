"""Disks of one guest that use the same claim."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.kinds import VM, VMI

from ..vm_review import COMPONENT, a_spec, a_vm, a_vmi, review

VOLUMES = "spec.template.spec.volumes"
CLAIM: Object = {"persistentVolumeClaim": {"claimName": "c"}}
DATA: Object = {"dataVolume": {"name": "c"}}
READ: Object = {"persistentVolumeClaim": {"claimName": "c", "readOnly": True}}
OVERLAY: Object = {"ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}}
OTHER: Object = {"persistentVolumeClaim": {"claimName": "other"}}
WRITER: Object = {"disk": {"bus": "virtio"}}
READER: Object = {"disk": {"bus": "virtio", "readonly": True}}
SHARED: Object = {"disk": {"bus": "virtio"}, "shareable": True}
DISC: Object = {"cdrom": {"bus": "sata"}}


def a_pair(*disks: tuple[Object, Object], **rest: Any) -> Object:
    """A spec with these volumes, each shown as the disk beside it."""
    shown = [{"name": f"d{number}", **disk} for number, (_, disk) in enumerate(disks)]
    volumes = [{"name": f"d{number}", **source} for number, (source, _) in enumerate(disks)]
    return a_spec(devices={"disks": shown}, volumes=volumes, **rest)


CLASHES: dict[str, tuple[Object, str]] = {
    "two writers": (a_pair((CLAIM, WRITER), (CLAIM, WRITER)), "persistentVolumeClaim.claimName"),
    "a claim by its DataVolume": (a_pair((CLAIM, WRITER), (DATA, WRITER)), "dataVolume.name"),
    "a writer and a disc": (
        a_pair((CLAIM, WRITER), (CLAIM, DISC)), "persistentVolumeClaim.claimName",
    ),
    "a writer and a reader": (a_pair((READ, WRITER), (DATA, WRITER)), "dataVolume.name"),
    "a writer and an overlay": (
        a_pair((CLAIM, WRITER), (OVERLAY, WRITER)), "ephemeral.persistentVolumeClaim.claimName",
    ),
    "one of them shareable": (
        a_pair((CLAIM, SHARED), (CLAIM, WRITER)), "persistentVolumeClaim.claimName",
    ),
    "a lun": (
        a_pair((CLAIM, WRITER), (CLAIM, {"lun": {"bus": "scsi"}})),
        "persistentVolumeClaim.claimName",
    ),
    "disks that are not written down": (
        a_spec(volumes=[{"name": "d0", **CLAIM}, {"name": "d1", **CLAIM}]),
        "persistentVolumeClaim.claimName",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "field"), CLASHES.values(), ids=CLASHES)
def test_a_claim_that_is_written_to_is_one_disks(spec: Object, field: str) -> None:
    [error] = review(VM, a_vm(spec))[1]
    assert (error.field, error.message) == (
        f"{VOLUMES}[1].{field}",
        f"{VOLUMES}[1] uses claim c, which {VOLUMES}[0] uses as well; disks of one claim must"
        " only read it, or be shareable",
    )


FINE: dict[str, Object] = {
    "two claims": a_pair((CLAIM, WRITER), (OTHER, WRITER)),
    "two discs": a_pair((CLAIM, DISC), (DATA, DISC)),
    "a disc and a reader": a_pair((CLAIM, DISC), (CLAIM, READER)),
    "two read-only claims": a_pair((READ, WRITER), (READ, WRITER)),
    "two overlays": a_pair((OVERLAY, WRITER), (OVERLAY, WRITER)),
    "an overlay and a disc": a_pair((OVERLAY, WRITER), (CLAIM, DISC)),
    "two that are shareable": a_pair((CLAIM, SHARED), (DATA, SHARED)),
    "one image twice": a_pair(*[({"containerDisk": {"image": "i"}}, WRITER)] * 2),
    "a disk and a filesystem": {
        "domain": {
            "memory": {"guest": "1Gi"},
            "devices": {
                "disks": [{"name": "d0", **WRITER}],
                "filesystems": [{"name": "d1", "virtiofs": {}}],
            },
        },
        "volumes": [{"name": "d0", **CLAIM}, {"name": "d1", **CLAIM}],
    },
}


@pytest.mark.parametrize("spec", FINE.values(), ids=FINE)
def test_what_can_be_shared_may_be(spec: Object) -> None:
    assert review(VM, a_vm(spec))[1] == []


def test_a_third_disk_of_a_claim_is_named_once() -> None:
    errors = review(VM, a_vm(a_pair(*[(CLAIM, WRITER)] * 3)))[1]
    assert [error.field for error in errors] == [
        f"{VOLUMES}[{number}].persistentVolumeClaim.claimName" for number in (1, 2)
    ]


def test_a_vm_that_was_let_in_can_be_edited_and_started() -> None:
    pair = [(CLAIM, WRITER), (DATA, WRITER)]
    old = a_vm(a_pair(*pair))
    assert review(VM, a_vm(a_pair(*pair, hostname="web")), old)[1] == []
    assert review(VM, a_vm(a_pair(*pair), runStrategy="Always"), old)[1] == []
    more = a_pair(*pair, (OTHER, WRITER), (OTHER, WRITER))
    assert [error.field for error in review(VM, a_vm(more), old)[1]] == [
        f"{VOLUMES}[3].persistentVolumeClaim.claimName"
    ]
    assert review(VMI, a_vmi(a_pair(*pair)), user=COMPONENT)[1] == []
    assert len(review(VMI, a_vmi(a_pair(*pair)))[1]) == 1
