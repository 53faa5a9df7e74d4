"""What the owner of an instance is told of its volumes."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.node import events
from livevirt.vm.sizing import hot_change


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


def sized(*conditions: Object, **status: Any) -> Object:
    domain = {"cpu": {"sockets": 2}, "memory": {"guest": "1Gi"}}
    return {"spec": {"domain": domain}, "status": {"conditions": [*conditions], **status}}


def cpu(reason: str) -> Object:
    return hot_change.condition("HotVCPUChange", reason, "m")


#: The instance, what changes in its status, and the types and reasons of what is recorded.
SIZES: dict[str, tuple[Object, Object, list[tuple[str, str]]]] = {
    "it begins": (sized(), {"conditions": [cpu("WaitingForResize")]}, []),
    "it makes progress": (
        sized(cpu("WaitingForResize")), {"conditions": [cpu("Plugging")]},
        [("Normal", "Plugging")],
    ),
    "it goes on": (sized(cpu("OverQuota")), {"conditions": [cpu("WaitingForResize")]}, []),
    "the guest does not follow": (
        sized(cpu("Plugging")), {"conditions": [cpu("GuestNotAccepting")]},
        [("Warning", "GuestNotAccepting")],
    ),
    "the node has no room": (
        sized(), {"conditions": [cpu("Deferred")]}, [("Warning", "Deferred")],
    ),
    "the controller has recorded what keeps the pod": (
        sized(podResize={"reason": "OverQuota"}), {"conditions": [cpu("OverQuota")]}, [],
    ),
    "it is over": (
        sized(cpu("Plugging")), {"conditions": [], "observedSizeRevision": {"cpu": 2}},
        [("Normal", "VCPUsChanged")],
    ),
    "it is over before it was reported": (
        sized(), {"observedSizeRevision": {"memory": 1}}, [("Normal", "MemoryChanged")],
    ),
    "something else changes": (sized(cpu("Plugging")), {"machine": {}}, []),
}  # fmt: skip


@pytest.mark.parametrize(("vmi", "changed", "recorded"), SIZES.values(), ids=SIZES)
def test_a_change_of_size(vmi: Object, changed: Object, recorded: list[tuple[str, str]]) -> None:
    recorder = Told()
    events.size_changed(recorder, vmi, changed)  # type: ignore[arg-type]
    assert [(type_, reason) for type_, reason, _ in recorder.events] == recorded


def a_grown_vmi(**memory: Any) -> Object:
    domain = {"cpu": {"sockets": 1}, "memory": {"guest": "1Gi"}}
    return {
        "metadata": {"name": "web"},
        "spec": {"domain": domain},
        "status": {"sizeRevision": {"memory": 1}, "memory": memory},
    }


@pytest.mark.wording
def test_a_change_that_nobody_confirms_is_not_said_to_be_in_the_guest() -> None:
    recorder: Any = Told()
    done = {hot_change.OBSERVED: {"memory": 1}}
    events.size_changed(recorder, a_grown_vmi(confirmed=False), done)
    events.size_changed(recorder, a_grown_vmi(confirmed=True), done)
    assert [message for _, _, message in recorder.events] == [
        "1Gi of memory: plugged, not confirmed: no guest agent",
        "The guest has 1Gi of memory",
    ]


def test_memory_that_may_not_shrink_is_recorded_once() -> None:
    recorder: Any = Told()
    events.size_changed(recorder, a_grown_vmi(), {"memory": {"shrinkable": False}})
    events.size_changed(recorder, a_grown_vmi(shrinkable=False), {"memory": {"guestCurrent": "1"}})
    assert [reason for _, reason, _ in recorder.events] == ["MemoryMayNotShrink"]
