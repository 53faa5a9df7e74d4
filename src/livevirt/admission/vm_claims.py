"""Claims that several disks of a guest use: QEMU opens the same image twice for readers only.

Disks that are all shareable are the other case: then it locks nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from livevirt.admission.vm_disks import wrong
from livevirt.api.field_error import FieldError
from livevirt.api.request import Object
from livevirt.rollout.disks import target
from livevirt.rollout.volume_lists import Lists

_SOURCES = (
    ("persistentVolumeClaim", "claimName"),
    ("dataVolume", "name"),
    ("ephemeral", "persistentVolumeClaim", "claimName"),
)


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
                " share a claim only if all of them are read-only or all are shareable"
            )
            yield wrong(f"{here}.{field}", message)


def _clashes(spec: Object) -> Iterator[tuple[int, str, int, str]]:
    """Yield each volume that cannot have its claim: number, field, the other's number, claim."""
    lists = Lists.of(spec)
    users: dict[str, list[tuple[int, Object, Object]]] = {}
    for number, volume in enumerate(lists.volumes):
        disk, (field, claim) = lists.disk(volume["name"]), _claim(volume)
        if not claim or disk is None:
            continue
        for other, other_volume, other_disk in users.setdefault(claim, []):
            reads = _only_read(volume, disk) and _only_read(other_volume, other_disk)
            if not reads and not (disk.get("shareable") and other_disk.get("shareable")):
                yield number, field, other, claim
                break
        users[claim].append((number, volume, disk))


def _claim(volume: Object) -> tuple[str, str]:
    """Return where a volume names its claim, and the claim; nothing if it is of none."""
    for source in _SOURCES:
        value = volume
        for key in source[:-1]:
            value = value.get(key) or {}
        if name := value.get(source[-1]):
            return ".".join(source), str(name)
    return "", ""


def _only_read(volume: Object, disk: Object) -> bool:
    """Tell whether nothing is written to the claim; what an ephemeral volume writes goes beside."""
    shown_as = target(disk)
    return bool(
        shown_as == "cdrom"
        or volume.get("ephemeral")
        or (volume.get("persistentVolumeClaim") or {}).get("readOnly")
        or (disk.get(shown_as) or {}).get("readonly")
    )
