"""Columns of claims, volumes and storage classes, as `kubectl get` prints them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from livevirt.kube.objects.kind import Column
from livevirt.kube.server.cells import AGE, NAME, Cells, Object, Printer, age_of, name, wide

UNSET = "<unset>"
_OLD_DEFAULT = "storageclass.beta.kubernetes.io/is-default-class"
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _modes(modes: Iterable[str] | None) -> str:
    given = set(modes or ())
    return ",".join(short for mode, short in _MODES.items() if mode in given)


def _storage_class(obj: Object) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    old = annotations.get("volume.beta.kubernetes.io/storage-class")
    return str(old if old is not None else (obj.get("spec") or {}).get("storageClassName") or "")


def _claim(claim: Object, now: datetime) -> Cells:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    bound = bool(spec.get("volumeName"))
    return [
        name(claim),
        _phase(claim),
        spec.get("volumeName") or "",
        (status.get("capacity") or {}).get("storage", "") if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        _storage_class(claim),
        spec.get("volumeAttributesClassName") or UNSET,
        age_of(claim, now),
        spec.get("volumeMode") or UNSET,
    ]


def _volume(volume: Object, now: datetime) -> Cells:
    spec, status = volume.get("spec") or {}, volume.get("status") or {}
    claim = spec.get("claimRef")
    return [
        name(volume),
        (spec.get("capacity") or {}).get("storage", ""),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy") or "",
        _phase(volume),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _storage_class(volume),
        spec.get("volumeAttributesClassName") or UNSET,
        status.get("reason") or "",
        age_of(volume, now),
        spec.get("volumeMode") or UNSET,
    ]


def _class(class_: Object, now: datetime) -> Cells:
    annotations = class_["metadata"].get("annotations") or {}
    marks = ("storageclass.kubernetes.io/is-default-class", _OLD_DEFAULT)
    default = any(annotations.get(mark) == "true" for mark in marks)
    return [
        name(class_) + (" (default)" if default else ""),
        class_.get("provisioner", ""),
        class_.get("reclaimPolicy") or "Delete",
        class_.get("volumeBindingMode") or "Immediate",
        bool(class_.get("allowVolumeExpansion")),
        age_of(class_, now),
    ]


def _phase(obj: Object) -> str:
    """Return the phase, or Terminating once a deletion was asked for."""
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    return str((obj.get("status") or {}).get("phase") or "")


PRINTERS: dict[tuple[str, str], Printer] = {
    ("", "PersistentVolumeClaim"): Printer(
        (
            NAME,
            Column("Status", description="Pending, Bound, Lost or Terminating"),
            Column("Volume", description="the volume behind the claim"),
            Column("Capacity", description="the size of that volume"),
            Column("Access Modes", description="how that volume may be used"),
            Column("StorageClass", description="the class it asks for"),
            Column("VolumeAttributesClass", description="the attributes class it asks for"),
            AGE,
            wide("VolumeMode", "Filesystem or Block"),
        ),
        _claim,
    ),
    ("", "PersistentVolume"): Printer(
        (
            NAME,
            Column("Capacity", description="its size"),
            Column("Access Modes", description="how it may be used"),
            Column("Reclaim Policy", description="what becomes of it without its claim"),
            Column("Status", description="Available, Bound, Released, Failed or Terminating"),
            Column("Claim", description="the claim it is bound to"),
            Column("StorageClass", description="the class it belongs to"),
            Column("VolumeAttributesClass", description="the attributes class it has"),
            Column("Reason", description="why it is in this state"),
            AGE,
            wide("VolumeMode", "Filesystem or Block"),
        ),
        _volume,
    ),
    ("storage.k8s.io", "StorageClass"): Printer(
        (
            NAME,
            Column("Provisioner", description="who makes its volumes"),
            Column("ReclaimPolicy", description="what becomes of a volume without its claim"),
            Column("VolumeBindingMode", description="when a claim gets its volume"),
            Column("AllowVolumeExpansion", description="whether its claims may grow"),
            AGE,
        ),
        _class,
    ),
}
