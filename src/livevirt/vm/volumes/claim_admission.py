"""Claims that several disks of a guest use, and cannot."""

from __future__ import annotations

from collections.abc import Iterator

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.request import Object
from livevirt.vm.volumes.claim_sharing import Use, clash, use_of
from livevirt.vm.volumes.disk_admission import wrong
from livevirt.vm.volumes.volume_lists import Lists

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
