"""Disks of one guest that are of one claim: which of them a QEMU has side by side.

Who writes wants the image for itself, unless the other disk is shareable; a CD-ROM never is. What
only reads goes with its like.
"""

from __future__ import annotations

from dataclasses import dataclass

from livevirt.kube.objects.request import Object
from livevirt.vm.spec.disks import target
from livevirt.vm.volumes.volume_lists import claim_of, read_only


@dataclass(frozen=True, slots=True)
class Use:
    """How a disk uses a claim; `claim` is empty if it uses none."""

    claim: str
    writes: bool
    shares: bool


def use_of(volume: Object, disk: Object) -> Use:
    """Return how a disk uses the claim of its volume; what is ephemeral writes elsewhere."""
    below = (volume.get("ephemeral") or {}).get("persistentVolumeClaim") or {}
    shown_as = target(disk)
    reads = shown_as == "cdrom" or read_only(volume) or (disk.get(shown_as) or {}).get("readonly")
    return Use(
        claim=claim_of(volume) or below.get("claimName") or "",
        writes=not below and not reads,
        shares=not below and shown_as == "disk" and bool(disk.get("shareable")),
    )


def clash(one: Use, other: Use) -> bool:
    """Tell whether a guest cannot have both."""
    if not one.claim or one.claim != other.claim:
        return False
    return (one.writes and not other.shares) or (other.writes and not one.shares)
