"""PCIe ports: every virtio disk takes one, and a running guest has only so many."""

from __future__ import annotations

from collections.abc import Iterable

from livevirt.kube.objects.request import Object
from livevirt.vm.spec import disks
from livevirt.vm.spec.disks import hotpluggable, target
from livevirt.vm.verdict.comparison import VolumeEdit


def without_port(vmi: Object, edits: Iterable[VolumeEdit]) -> set[str]:
    """Return the names of the disks that find no port, of those that come by live edits.

    Those that go make room, and what already waits for a port is served first.
    """
    free = (vmi.get("status") or {}).get("freePCIePorts")
    if free is None:
        return set()  # the guest has not said yet
    coming, left = [], free - _waiting(vmi)
    for edit in edits:
        before, after = _on_port(edit.old_disk), _on_port(edit.disk)
        if after and not before:
            coming.append(edit.name)
        elif before and not after and hotpluggable(edit.old_volume):
            left += 1
    return set(coming[max(left, 0) :])


def _waiting(vmi: Object) -> int:
    """Return how many disks the instance has been given that the guest has not."""
    spec, status = vmi["spec"], vmi.get("status") or {}
    hot = {volume["name"] for volume in spec.get("volumes") or () if hotpluggable(volume)}
    there = {
        each["name"]
        for each in status.get("volumeStatus") or ()
        if each.get("phase") in ("Ready", "Detaching")
    }
    listed = (spec["domain"].get("devices") or {}).get("disks") or ()
    return sum(_on_port(disk) for disk in listed if disk["name"] in hot - there)


def _on_port(disk: Object | None) -> bool:
    return disk is not None and target(disk) == "disk" and disks.bus(disk) == "virtio"
