"""Claims that several disks of one guest use: which of them QEMU can open side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.request import Object
from livevirt.vm.spec.disks import target
from livevirt.vm.volumes.admission import wrong
from livevirt.vm.volumes.volume_lists import Lists, claim_of, read_only


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
    """Return whether a guest cannot have both."""
    if not one.claim or one.claim != other.claim:
        return False
    return (one.writes and not other.shares) or (other.writes and not one.shares)


_FIELDS = {
    "persistentVolumeClaim": "persistentVolumeClaim.claimName",
    "dataVolume": "dataVolume.name",
    "ephemeral": "ephemeral.persistentVolumeClaim.claimName",
}


def shared_claims(spec: Object) -> frozenset[str]:
    """Return the claims that disks of a spec use and cannot share."""
    return frozenset(claim for _, _, _, claim in _clashes(spec))


def claim_errors(path: str, spec: Object, shared: frozenset[str]) -> Iterator[FieldError]:
    """Yield volumes of a claim that an earlier disk uses; `shared` were so before and may stay."""
    for number, field, other, claim in _clashes(spec):
        if claim not in shared:
            here = f"{path}.volumes[{number}]"
            message = (
                f"{here} uses claim {claim}, which {path}.volumes[{other}] uses as well; disks"
                " of one claim must only read it, or be shareable"
            )
            yield wrong(f"{here}.{field}", message)


def _clashes(spec: Object) -> Iterator[tuple[int, str, int, str]]:
    """Yield each volume that cannot have its claim: number, field, the other's number, claim."""
    lists = Lists.of(spec)
    uses: list[tuple[int, Use]] = []
    for number, volume in enumerate(lists.volumes):
        disk = lists.disk(volume["name"])
        if disk is None:
            continue
        use = use_of(volume, disk)
        other = next((at for at, each in uses if clash(each, use)), None)
        if other is not None:
            field = next(path for source, path in _FIELDS.items() if volume.get(source))
            yield number, field, other, use.claim
        uses.append((number, use))
