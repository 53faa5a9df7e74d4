"""Claims, volumes and DataVolumes for tests, named after what matters about them."""

from __future__ import annotations

from typing import Any

from livevirt.kube.controllers import bootstrap
from livevirt.kube.controllers.storage import claim_plan
from livevirt.kube.controllers.storage.claim_plan import BIND_COMPLETED, VOLUME_PROTECTION
from livevirt.kube.objects import storage
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.storage import PROTECTION

WAITING: Object = bootstrap.DEFAULT
EAGER: Object = {**WAITING, "metadata": {"name": "eager"}, "volumeBindingMode": "Immediate"}
FOREIGN: Object = {
    "metadata": {"name": "foreign"},
    "provisioner": "example.com/disks",
    "volumeBindingMode": "Immediate",
}


def a_claim(
    size: str = "1Gi",
    class_name: str = "eager",
    *,
    uid: str = "u1",
    name: str = "data",
    annotations: dict[str, str] | None = None,
    finalizers: tuple[str, ...] = (PROTECTION,),
    deleting: bool = False,
    status: Object | None = None,
    **spec: Any,
) -> Object:
    meta: dict[str, Any] = {
        "name": name,
        "namespace": "team",
        "uid": uid,
        "resourceVersion": "1",
        "annotations": annotations or {},
        "finalizers": list(finalizers),
    }
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": meta,
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "resources": {"requests": {"storage": size}},
            **spec,
        },
        "status": status or {"phase": "Pending"},
    }


def a_volume(
    size: str = "1Gi",
    class_name: str = "eager",
    *,
    name: str = "v",
    phase: str = "Available",
    ours: bool = False,
    claim: Object | None = None,
    finalizers: tuple[str, ...] = (VOLUME_PROTECTION,),
    deleting: bool = False,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    meta: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "finalizers": list(finalizers)}
    meta["labels"] = labels or {}
    if ours:
        meta["annotations"] = {claim_plan.PROVISIONED_BY: storage.PROVISIONER}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    content = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "storageClassName": class_name,
        "persistentVolumeReclaimPolicy": "Delete",
        **spec,
    }
    if claim is not None:
        content["claimRef"] = claim_plan.claim_reference(claim)
    return {"metadata": meta, "spec": content, "status": {"phase": phase}}


def a_bound_claim(volume: str = "v", size: str = "1Gi", **rest: Any) -> Object:
    status = {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "capacity": {"storage": size},
    }
    annotations = {BIND_COMPLETED: "yes"}
    given: dict[str, Any] = {"annotations": annotations, "status": status, "volumeName": volume}
    return a_claim(rest.pop("asks", size), **{**given, **rest})


def a_data_volume(
    phase: str = "", *, size: str = "1Gi", deleting: bool = False, **source: Any
) -> Object:
    meta: dict[str, Any] = {"name": "data", "namespace": "team", "uid": "dv1"}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    storage = {"resources": {"requests": {"storage": size}}} if size else {}
    dv: Object = {"metadata": meta, "spec": {"source": source, "storage": storage}}
    if phase:
        dv["status"] = {"phase": phase}
    return dv
