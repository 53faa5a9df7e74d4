"""A spec's lists of volumes and disks, and how many PCIe ports they take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from livevirt.errors import LivevirtError
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.spec import disks
from livevirt.vm.spec.disks import hotpluggable, target
from livevirt.vm.verdict.comparison import VolumeEdit


class NotInLists(LivevirtError):
    """What was asked for does not go with the volumes and disks that are there."""


@dataclass(frozen=True, slots=True)
class Lists:
    """The volumes and disks of a spec. Every change is a new one; what stays keeps its place."""

    volumes: tuple[Object, ...]
    disks: tuple[Object, ...]

    @staticmethod
    def of(spec: Object) -> Lists:
        """Return the lists of an instance's spec, or of a template's."""
        devices = (spec.get("domain") or {}).get("devices") or {}
        return Lists(tuple(spec.get("volumes") or ()), tuple(devices.get("disks") or ()))

    def patch(self) -> Object:
        """Return the JSON merge patch that gives a spec these lists; an empty one is left out."""
        devices = {"disks": list(self.disks) or None}
        return {"volumes": list(self.volumes) or None, "domain": {"devices": devices}}

    # ------------------------------------------------------------ looking

    def names(self) -> set[str]:
        """Return the names of the volumes."""
        return {each["name"] for each in self.volumes}

    def volume(self, name: str) -> Object | None:
        """Return the volume of a name."""
        return next((each for each in self.volumes if each["name"] == name), None)

    def disk(self, name: str) -> Object | None:
        """Return the disk of a name."""
        return next((each for each in self.disks if each["name"] == name), None)

    def is_drive(self, name: str) -> bool:
        """Return whether a name is that of a CD-ROM drive."""
        disk = self.disk(name)
        return disk is not None and target(disk) == "cdrom"

    def meant(self, name: str) -> str:
        """Return the volume that is called so, or else the one that is of a claim called so."""
        if self.volume(name) is not None:
            return name
        return next((v["name"] for v in self.volumes if name and claim_of(v) == name), name)

    # ------------------------------------------------------------ changing

    def with_volume(self, volume: Object, disk: Object) -> Lists:
        """Add a volume and its disk, or put it into the empty CD-ROM drive of its name."""
        name = volume["name"]
        if self.volume(name) is not None:
            why = "because volume with that name already exists"
            raise NotInLists(f"Unable to add volume [{name}] {why}")
        self._refuse_used(volume)
        drives = self.disks if self.is_drive(name) else (*self.disks, disk)
        return Lists((*self.volumes, volume), drives)

    def without_volume(self, name: str) -> Lists:
        """Take a volume and its disk out; a CD-ROM drive stays, without a medium."""
        self._refuse_fixed(name)
        drive = self.is_drive(name)
        return Lists(
            tuple(each for each in self.volumes if each["name"] != name),
            tuple(each for each in self.disks if drive or each["name"] != name),
        )

    def with_medium(self, volume: Object) -> Lists:
        """Put an image into the CD-ROM drive of its name, in place of the one it holds."""
        name = volume["name"]
        self._refuse_other(name)
        if self.volume(name) is None:
            self._refuse_used(volume)
            return Lists((*self.volumes, volume), self.disks)
        self._refuse_fixed(name)
        others = Lists(tuple(each for each in self.volumes if each["name"] != name), self.disks)
        others._refuse_used(volume)
        return Lists(
            tuple(volume if each["name"] == name else each for each in self.volumes), self.disks
        )

    def without_medium(self, name: str) -> Lists:
        """Eject the image from a CD-ROM drive."""
        self._refuse_other(name)
        if self.volume(name) is None:
            raise NotInLists(f"the CD-ROM drive {name} is empty")
        return self.without_volume(name)

    # ------------------------------------------------------------ refusing

    def _refuse_used(self, volume: Object) -> None:
        claim = claim_of(volume)
        if claim and any(claim_of(each) == claim for each in self.volumes):
            raise NotInLists(f"Unable to add volume source [{claim}] because it already exists")

    def _refuse_fixed(self, name: str) -> None:
        volume = self.volume(name)
        if volume is None:
            why = "it does not exist"
        elif not hotpluggable(volume):
            why = "it is not hotpluggable"
        else:
            return
        raise NotInLists(f"Unable to remove volume [{name}] because {why}")

    def _refuse_other(self, name: str) -> None:
        if not self.is_drive(name):
            drives = [each["name"] for each in self.disks if target(each) == "cdrom"]
            known = f"it has {', '.join(drives)}" if drives else "it has none"
            raise NotInLists(f"the VM has no CD-ROM drive {name}; {known}")


def read_only(volume: Object) -> bool:
    """Return whether a volume marks its claim read-only, whatever its disk sets."""
    return bool((volume.get("persistentVolumeClaim") or {}).get("readOnly"))


def claim_of(volume: Object) -> str:
    """Return the claim a volume is of, empty if it is of none."""
    match volume:
        case {"persistentVolumeClaim": {"claimName": str(name)}} | {
            "dataVolume": {"name": str(name)}
        }:
            return name
    return ""


def claim_info(claim: Object) -> Object:
    """Return a claim as the status of an instance shows it: `persistentVolumeClaimInfo`."""
    spec, status = claim["spec"], status_of(claim)
    info = {
        "claimName": claim["metadata"]["name"],
        "accessModes": spec.get("accessModes"),
        "volumeMode": spec.get("volumeMode"),
        "capacity": status.get("capacity"),
        "requests": (spec.get("resources") or {}).get("requests"),
        "filesystemOverhead": "0" if spec.get("volumeMode") == "Block" else "0.055",
    }
    return {name: value for name, value in info.items() if value}


def without_port(vmi: Object, edits: Iterable[VolumeEdit]) -> set[str]:
    """Return the names of the disks that find no port, of those that come by live edits.

    Those that go make room, and what already waits for a port is served first.
    """
    free = status_of(vmi).get("freePCIePorts")
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
    spec, status = vmi["spec"], status_of(vmi)
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
