"""What may change in the volumes and disks of an instance that is there, with KubeVirt's messages.

Beyond KubeVirt a volume may get another claim in one step, and a CD-ROM drive be hotplugged where
its bus allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.request import Object
from livevirt.vm.spec import disks
from livevirt.vm.volumes.admission import wrong
from livevirt.vm.volumes.volume_lists import Lists, claim_of

_VOLUMES, _DISKS = "spec.volumes", "spec.domain.devices.disks"


def update_errors(new: Object, old: Object) -> list[FieldError]:
    """List what must not change so between an instance and what it is to become."""
    if new["spec"].get("utilityVolumes") != old["spec"].get("utilityVolumes"):
        message = "utility volumes are not served and cannot be changed"
        return [wrong("spec.utilityVolumes", message, "FieldValueNotSupported")]
    before, after = _unordered(old["spec"]), _unordered(new["spec"])
    if before == after:
        return []
    if mismatch := _mismatch(new["spec"], after):
        return [wrong(_VOLUMES, mismatch)]
    fixed, moved = _permanent(old, before), _moved(old) | _moved(new)
    return [
        *_permanent_errors(before, after, fixed, moved),
        *(error for name in sorted(after.names() - fixed) for error in _hot(name, before, after)),
        *bus_errors(old["spec"], new["spec"], fixed),
    ]


def bus_errors(
    before: Object, after: Object, besides: frozenset[str] = frozenset()
) -> Iterator[FieldError]:
    """Yield the added and removed disks that cannot be hotplugged."""
    old, new = _unordered(before), _unordered(after)
    for disk in [d for d in (*old.disks, *new.disks) if (d in old.disks) != (d in new.disks)]:
        name, shown_as, bus = disk["name"], disks.target(disk), disks.bus(disk)
        allowed = disks.HOTPLUG_BUSES[shown_as]
        if name in besides:
            continue
        if bus not in allowed:
            what = "LUN" if shown_as == "lun" else shown_as
            buses = " or ".join(f"'{each}'" for each in allowed)
            message = f"for {what} [{name}] requires bus to be {buses}. [{bus}] is not permitted."
            yield wrong(_DISKS, f"Hotplug configuration {message}")
        elif disk.get("dedicatedIOThread") and bus != "virtio":
            message = f"for [{name}] requires virtio bus for IOThreads."
            yield wrong(_DISKS, f"Hotplug configuration {message}")


def _unordered(spec: Object) -> Lists:
    """Return the volumes and disks of a spec without the boot order, which any disk may change."""
    found = Lists.of(spec)
    return replace(found, disks=tuple(map(disks.unordered, found.disks)))


def _mismatch(spec: Object, lists: Lists) -> str:
    """Return the error if not every volume is shown to the guest by just one disk or filesystem."""
    filesystems = (spec["domain"].get("devices") or {}).get("filesystems") or ()
    declared = [volume for volume in lists.volumes if not volume.get("memoryDump")]
    names = lists.names()
    shown = [d for d in lists.disks if disks.target(d) != "cdrom" or d["name"] in names]
    required = len(filesystems) + len(shown)
    if len(declared) == required:
        return ""
    return f"mismatch between volumes declared ({len(declared)}) and required ({required})"


def _permanent(old: Object, lists: Lists) -> frozenset[str]:
    """Return the volumes that a guest was started with and keeps."""
    reported = (old.get("status") or {}).get("volumeStatus") or ()
    kept = frozenset(each["name"] for each in reported if "hotplugVolume" not in each)
    return kept & lists.names()


def _moved(vmi: Object) -> frozenset[str]:
    """Return the volumes whose content is copied to another claim."""
    listed = (vmi.get("status") or {}).get("migratedVolumes") or ()
    return frozenset(each["volumeName"] for each in listed)


def _permanent_errors(
    before: Lists, after: Lists, fixed: frozenset[str], moved: frozenset[str]
) -> Iterator[FieldError]:
    if not fixed <= after.names():
        yield wrong(_VOLUMES, "Number of permanent volumes has changed")
        return
    for name in sorted(fixed):
        if before.volume(name) != after.volume(name) and name not in moved:
            yield wrong(_VOLUMES, f"permanent volume {name}, changed")
        if before.disk(name) != after.disk(name):
            yield wrong(_DISKS, f"permanent disk {name}, changed")


def _hot(name: str, before: Lists, after: Lists) -> Iterator[FieldError]:
    """Yield what is wrong with a volume that may be hotplugged."""
    volume, known = after.volume(name) or {}, before.volume(name)
    if volume.get("memoryDump"):
        return
    if volume != known and not claim_of(volume):
        yield wrong(_VOLUMES, f"volume {name} is not a PVC or DataVolume")
    elif after.disk(name) is None and before.disk(name) is not None:
        yield wrong(_VOLUMES, f"volume {name} doesn't have a matching disk")
    elif after.disk(name) is None and known is None:
        yield wrong(_VOLUMES, f"disk {name} does not exist")
    elif volume == known and before.disk(name) != after.disk(name):
        yield wrong(_DISKS, f"hotplug disk {name}, changed")
