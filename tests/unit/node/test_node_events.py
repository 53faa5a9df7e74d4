"""What the owner of an instance is told of its volumes."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.node import events


class Told:
    """A recorder that keeps what it was told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, _: Object, type_: str, reason: str, message: str) -> None:
        self.events.append((type_, reason, message))


def entry(reason: str, message: str = "", name: str = "data", **more: Any) -> Object:
    return {"name": name, "reason": reason, "message": message, "hotplugVolume": {}, **more}


READY = entry("VolumeReady", "Successfully attach hotplugged volume data to VM")
GOING = entry("Detaching", "volume data is being detached")
MISSING = entry("FailedPvcNotFound", "PVC data-1 not found")
FIXED = {"name": "root", "target": "vda"}

#: What the status said, what it says now, and what is told of that.
CHANGES: dict[str, tuple[list[Object], list[Object], list[tuple[str, str, str]]]] = {
    "it comes": (
        [], [entry("Attaching", "volume data is being attached")],
        [("Normal", "Attaching", "volume data is being attached")],
    ),
    "it is there": ([], [READY], [("Normal", "VolumeReady", READY["message"])]),
    "it is there still": ([READY], [READY], []),
    "it is to go": ([READY], [GOING], [("Normal", "Detaching", GOING["message"])]),
    "it has gone": (
        [GOING], [],
        [("Normal", "VolumeUnMountedFromPod",
          "Volume data has been unmounted from virt-launcher pod")],
    ),
    "it is stuck, and is named though its message does not": (
        [], [MISSING], [("Warning", "FailedPvcNotFound", "Volume data: PVC data-1 not found")],
    ),
    "it is stuck for another reason": (
        [MISSING], [entry("ClaimInUse", "PVC data-1 is in use by VMI other")],
        [("Warning", "ClaimInUse", "Volume data: PVC data-1 is in use by VMI other")],
    ),
    "only its words differ": (
        [entry("DataVolumeNotReady", "1% done")], [entry("DataVolumeNotReady", "2% done")], [],
    ),
    "one goes and another comes": (
        [GOING], [entry("VolumeReady", "more is there", "more")],
        [("Normal", "VolumeReady", "more is there"),
         ("Normal", "VolumeUnMountedFromPod",
          "Volume data has been unmounted from virt-launcher pod")],
    ),
    "a volume of the start": ([], [FIXED], []),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "told"), CHANGES.values(), ids=CHANGES)
def test_volumes_that_come_go_or_get_stuck(
    before: list[Object], after: list[Object], told: list[tuple[str, str, str]]
) -> None:
    recorder = Told()
    vmi = {"status": {"volumeStatus": [FIXED, *before]}}
    events.volumes_changed(recorder, vmi, after)  # type: ignore[arg-type]
    assert recorder.events == told


def test_a_volume_that_was_copied() -> None:
    recorder = Told()
    moved = {"volumeName": "data", "destinationPVCInfo": {"claimName": "new"}}
    other = {"volumeName": "more", "destinationPVCInfo": {"claimName": "b"}}
    vmi = {"status": {"migratedVolumes": [moved, other]}}
    events.volumes_copied(recorder, vmi, [other])  # type: ignore[arg-type]
    told = ("Normal", "VolumeMigrated", "Volume data was copied and is on PVC new now")
    assert recorder.events == [told]
