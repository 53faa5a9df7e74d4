"""The PersistentVolume made for a claim, or why none can be."""

from __future__ import annotations

from pathlib import Path

from livevirt.kube.objects import storage
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.storage import PROVISIONED_ACCESS_MODES, PROVISIONER, VOLUME_MODE

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"


def volume_name(claim: Object) -> str:
    """Return the name of the volume that is made for a claim; the same every time."""
    return f"pvc-{claim['metadata']['uid']}"


def objection(claim: Object, no_devices: str) -> str:
    """Say why no directory can serve the claim, or nothing.

    `no_devices` tells why no file of this machine can be a block device, if none can.
    """
    spec = claim["spec"]
    if spec.get("volumeMode") == "Block" and no_devices:
        return (
            f"{PROVISIONER} keeps disks as files, and makes block devices of them where it has loop"
            f" devices; {no_devices}: create the claim without volumeMode Block"
        )
    unknown = [
        mode for mode in spec.get("accessModes") or () if mode not in PROVISIONED_ACCESS_MODES
    ]
    if unknown:
        offered = ", ".join(PROVISIONED_ACCESS_MODES)
        return f"{PROVISIONER} does not offer access mode {unknown[0]}, only {offered}"
    if spec.get("selector") is not None:
        return f"{PROVISIONER} makes new volumes, which no selector can choose"
    if spec.get("dataSource") is not None or spec.get("dataSourceRef") is not None:
        return f"{PROVISIONER} makes empty volumes: use a DataVolume to fill one"
    return ""


def volume_for(claim: Object, storage_class: Object, root: Path) -> Object:
    """Return the volume to create for a claim, reserved for it from the start."""
    name = volume_name(claim)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": {PROVISIONED_BY: PROVISIONER},
            "finalizers": [VOLUME_PROTECTION],
        },
        "spec": {
            "capacity": {"storage": str(storage.size(claim))},
            "accessModes": list(claim["spec"]["accessModes"]),
            "volumeMode": claim["spec"].get("volumeMode") or VOLUME_MODE,
            "storageClassName": storage_class["metadata"]["name"],
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "hostPath": {"path": str(root / name), "type": ""},
            "claimRef": claim_reference(claim),
        },
    }


def claim_reference(claim: Object) -> Object:
    """Return the reference by which a volume says whose it is."""
    meta = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "resourceVersion": meta.get("resourceVersion", ""),
    }


def is_ours(volume: Object) -> bool:
    """Return whether a volume was made by us, so that its directory is ours to remove."""
    annotations = volume["metadata"].get("annotations") or {}
    return bool(annotations.get(PROVISIONED_BY) == PROVISIONER)
