"""The next step for a DataVolume: its claim, then its data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from livevirt.kube.objects import storage
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.storage import BIND_AT_ONCE, PROTECTION
from livevirt.vm import kinds
from livevirt.vm.datavolumes.imports import Job
from livevirt.vm.volumes.datavolume_admission import SERVED

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


@dataclass(frozen=True, slots=True)
class Origin:
    """A claim to copy, as it stands."""

    claim: Object | None
    obstacle: str = ""  # why it cannot be copied now
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DataVolumeSnapshot:
    """Everything the decision depends on, read at one moment."""

    dv: Object
    now: datetime
    claim: Object | None = None
    volume: str = ""  # name of the volume behind a bound claim
    disk: bool = False  # it holds a disk
    storage_class: Object | None = None  # of the claim, or the one it would get
    origin: Origin | None = None  # of a copy only
    job: Job | None = None
    refused: str = ""  # why the claim could not be made when it was last tried


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """Make the claim."""

    claim: Object


@dataclass(frozen=True, slots=True)
class AdoptClaim:
    """Take over a claim that is there."""

    reference: Object


@dataclass(frozen=True, slots=True)
class Start:
    """Begin to fill the volume."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End what fills the volume."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Do nothing until something changes, or the time has passed."""

    after: timedelta | None = None
    type: Literal["Normal", "Warning"] = "Warning"
    reason: str = ""
    message: str = ""


Step = CreateClaim | AdoptClaim | Start | Stop | Rest


def plan(seen: DataVolumeSnapshot) -> Step:
    """Return the next step towards a filled claim; the first rule that matches wins."""
    dv, claim, job = seen.dv, seen.claim, seen.job
    phase = status_of(dv).get("phase")
    ending = "deletionTimestamp" in dv["metadata"] or (
        claim is not None and "deletionTimestamp" in claim["metadata"]
    )
    if ending or phase in FINAL or (claim is None and job is not None):
        return Rest() if job is None else Stop()
    if unserved(dv):
        return Rest()
    if claim is None:
        return _claim(seen)
    if not owned(claim, dv):
        if may_adopt(claim, dv):
            return AdoptClaim(owner(dv))
        return Rest(None, "Warning", "ErrResourceExists", taken(claim))
    if not seen.volume or source_of(dv) == "":
        return Rest()
    if job is not None:
        return _go_on(job, seen)
    if seen.disk:
        return Rest()
    if seen.origin is not None and seen.origin.obstacle:
        return Rest(None, "Warning", seen.origin.reason, seen.origin.obstacle)
    return Start()


def _claim(seen: DataVolumeSnapshot) -> Step:
    if seen.refused:
        return Rest()
    size = ""
    if seen.origin is not None and not size_of(seen.dv):
        if seen.origin.claim is None:
            return Rest(None, "Warning", seen.origin.reason, seen.origin.obstacle)
        size = capacity(seen.origin.claim)
    return CreateClaim(claim_for(seen.dv, seen.storage_class, size))


def _go_on(job: Job, seen: DataVolumeSnapshot) -> Step:
    if not job.error or job.hopeless or job.retry_at is None:
        return Rest()
    if seen.now < job.retry_at:
        return Rest(job.retry_at - seen.now, "Warning", "Error", job.error)
    if seen.origin is not None and seen.origin.obstacle:
        return Rest(None, "Warning", seen.origin.reason, seen.origin.obstacle)
    return Start()


def source_of(dv: Object) -> str:
    """Return the name of the source, or nothing where another controller fills the claim."""
    source = dv["spec"].get("source") or {}
    return next((name for name, value in source.items() if value is not None), "")


def unserved(dv: Object) -> str:
    """Return what the DataVolume asks for that livevirt does not support, or nothing."""
    spec = dv["spec"]
    if spec.get("sourceRef"):
        return "sourceRef is not served: name the source itself"
    source = source_of(dv)
    if source and source not in SERVED:
        return f"source {source} is not served, only {', '.join(SERVED)}"
    if spec.get("contentType") == "archive":
        return "contentType archive is not served, only kubevirt"
    if source == "registry":
        url = (spec["source"]["registry"] or {}).get("url") or ""
        if not url.startswith("docker://"):
            return f"registry source {url!r} is not served, only docker://NAME"
    return ""


def taken(claim: Object) -> str:
    """Report that the claim's name is taken."""
    name = claim["metadata"]["name"]
    return f'claim "{name}" exists and is not this DataVolume\'s'


def capacity(claim: Object) -> str:
    """Return how much a claim holds, or asks for while it holds nothing."""
    held = status_of(claim).get("capacity") or {}
    asked = (claim["spec"].get("resources") or {}).get("requests") or {}
    return str(held.get("storage") or asked.get("storage") or "")
