"""The claim of a DataVolume, made from its `pvc` or `storage`."""

from __future__ import annotations

from typing import Any

from livevirt.kube.objects import storage
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.storage import BIND_AT_ONCE, PROTECTION
from livevirt.vm import kinds

ADOPTION = "cdi.kubevirt.io/allowClaimAdoption"
CONTENT_TYPE = "cdi.kubevirt.io/storage.contentType"
_COPIED = ("accessModes", "dataSource", "dataSourceRef", "resources", "selector",
           "storageClassName", "volumeMode", "volumeName")  # fmt: skip


def claim_for(dv: Object, storage_class: Object | None, source_size: str = "") -> Object:
    """Return the claim to create; `source_size` counts where the DataVolume names none."""
    meta, spec = dv["metadata"], dv["spec"]
    wanted = spec.get("pvc") or spec.get("storage") or {}
    filled: dict[str, Any] = {name: wanted[name] for name in _COPIED if name in wanted}
    if not filled.get("accessModes"):
        ours = storage_class is not None and storage.is_ours(storage_class)
        filled["accessModes"] = [storage.PROVISIONED_ACCESS_MODES[0] if ours else "ReadWriteOnce"]
    filled.setdefault("volumeMode", storage.VOLUME_MODE)
    if source_size and not size_of(dv):
        filled["resources"] = {**filled.get("resources", {}), "requests": {"storage": source_size}}
    annotations = dict(meta.get("annotations") or {})
    annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    # Where the data lies is the same for every node of this machine: filling it is use enough.
    annotations |= {BIND_AT_ONCE: "true", CONTENT_TYPE: spec.get("contentType") or "kubevirt"}
    labels = {**(meta.get("labels") or {}), "app": "containerized-data-importer"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": annotations,
            "finalizers": [PROTECTION],
            "ownerReferences": [owner(dv)],
        },
        "spec": filled,
    }


def size_of(dv: Object) -> str:
    """Return how much storage the DataVolume asks for, or nothing."""
    wanted = dv["spec"].get("pvc") or dv["spec"].get("storage") or {}
    return str(((wanted.get("resources") or {}).get("requests") or {}).get("storage") or "")


def owner(dv: Object) -> Object:
    """Return the reference by which the claim goes with its DataVolume."""
    return {
        "apiVersion": kinds.DATA_VOLUME.api_version,
        "kind": kinds.DATA_VOLUME.kind,
        "name": dv["metadata"]["name"],
        "uid": dv["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owned(claim: Object, dv: Object) -> bool:
    """Return whether the claim is this DataVolume's."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(each.get("uid") == dv["metadata"]["uid"] for each in owners)


def may_adopt(claim: Object, dv: Object) -> bool:
    """Return whether the DataVolume may take a claim that was there before it."""
    annotations = dv["metadata"].get("annotations") or {}
    controlled = any(e.get("controller") for e in claim["metadata"].get("ownerReferences") or ())
    return annotations.get(ADOPTION) == "true" and not controlled
