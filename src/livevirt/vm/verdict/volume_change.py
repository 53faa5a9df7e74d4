"""What an edit makes of one disk and of the volume of its name."""

from __future__ import annotations

from dataclasses import dataclass

from livevirt.kube.objects.request import Object
from livevirt.vm.spec.disks import target


@dataclass(frozen=True, slots=True)
class Edit:
    """What is under one name, before and after; None where there is none."""

    name: str
    old_volume: Object | None
    volume: Object | None
    old_disk: Object | None
    disk: Object | None

    @property
    def is_drive(self) -> bool:
        """Whether it is about a CD-ROM, on either side."""
        return any(disk and target(disk) == "cdrom" for disk in (self.old_disk, self.disk))
