"""The next step for a claim: find or make its volume, bind it, grow it, release it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from livevirt.files.raw_file import whole
from livevirt.kube.control.cache import Key, ToKeys
from livevirt.kube.control.controller import Controller
from livevirt.kube.objects import conditions, storage
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.selector import label_selector
from livevirt.kube.objects.storage import (
    BIND_AT_ONCE,
    PROTECTION,
    PROVISIONED_ACCESS_MODES,
    PROVISIONER,
    VOLUME_MODE,
    ClaimUser,
)

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"


def volume_name(claim: Object) -> str:
    """Return the name of the volume that is made for a claim; the same every time."""
    return f"pvc-{claim['metadata']['uid']}"


def objection(claim: Object, no_devices: str) -> str:
    """Return why no directory can serve the claim, or nothing.

    `no_devices` is why no file of this machine can be a block device, if none can.
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
    """Return the reference by which a volume names its claim."""
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


def best(claim: Object, volumes: Iterable[Object]) -> Object | None:
    """Return the smallest free volume that has all the claim asks for, the first by name."""
    suiting = [volume for volume in volumes if is_free(volume) and suits(claim, volume)]
    return min(suiting, key=lambda each: (capacity(each), each["metadata"]["name"]), default=None)


def is_free(volume: Object) -> bool:
    """Return whether no claim has or is promised the volume."""
    return (
        "claimRef" not in volume["spec"]
        and "deletionTimestamp" not in volume["metadata"]
        and status_of(volume).get("phase") == "Available"
    )


def suits(claim: Object, volume: Object) -> bool:
    """Return whether the volume is what the claim asks for."""
    wanted, offered = claim["spec"], volume["spec"]
    labels = volume["metadata"].get("labels") or {}
    return (
        capacity(volume) >= storage.size(claim)
        and set(wanted.get("accessModes") or ()) <= set(offered.get("accessModes") or ())
        and storage.class_of(claim) == (offered.get("storageClassName") or "")
        and mode(claim) == mode(volume)
        and ("selector" not in wanted or label_selector(wanted["selector"]).matches(labels))
    )


def promised_to(volume: Object, claim: Object) -> bool:
    """Return whether the volume names the claim, by uid or, before it was bound, by name alone."""
    ref, meta = volume["spec"].get("claimRef"), claim["metadata"]
    if ref is None or (ref.get("namespace"), ref.get("name")) != (meta["namespace"], meta["name"]):
        return False
    return ref.get("uid") in (None, "", meta["uid"])


def held_by(volume: Object, claim: Object) -> bool:
    """Return whether the volume is this very claim's, and no namesake's."""
    ref = volume["spec"].get("claimRef") or {}
    return bool(ref.get("uid") == claim["metadata"]["uid"])


def capacity(volume: Object) -> Quantity:
    """Return how much a volume holds."""
    return parse((volume["spec"].get("capacity") or {}).get("storage", "0"))


def mode(obj: Object) -> str:
    """Return the volume mode of a claim or a volume."""
    return str(obj["spec"].get("volumeMode") or "Filesystem")


BOUND_BY_US = "pv.kubernetes.io/bound-by-controller"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
RESIZING = "Resizing"


class Usage(Protocol):
    """Knows which claims are in use, and by what."""

    def of(self, claim: Key) -> list[ClaimUser]:
        """Return what uses a claim."""

    def claims_of(self, user: Object) -> list[Key]:
        """Return the claims an object uses."""

    def wakes(self, controller: Controller, keys: ToKeys | None = None) -> None:
        """Have a controller reconcile claims, or what `keys` makes of users, when use changes."""


@dataclass(frozen=True, slots=True)
class ClaimSnapshot:
    """Everything the decision depends on, read at one moment."""

    claim: Object
    storage_class: Object | None
    volume: Object | None = None  # the one the claim names, else one that names the claim
    others: tuple[Object, ...] = ()  # volumes it could be given
    disk: int | None = None  # bytes of the disk on a volume of ours, None if there is none
    used: bool = False  # something that runs, or is about to, has it
    scheduled: bool = False  # one of those has its node
    no_devices: str = ""  # why no file can be a block device here, if none can


@dataclass(frozen=True, slots=True)
class Protect:
    """Hold the claim, or volume, for as long as something uses it."""

    finalizers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Hold the claim or volume no longer."""

    finalizers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reserve:
    """Promise a volume that is there to the claim."""

    volume: Object
    reference: Object


@dataclass(frozen=True, slots=True)
class Provision:
    """Make a volume for the claim."""

    volume: Object


@dataclass(frozen=True, slots=True)
class Bind:
    """Write the volume's name into the claim."""

    volume: str


@dataclass(frozen=True, slots=True)
class Grow:
    """Let the volume hold more."""

    capacity: str


@dataclass(frozen=True, slots=True)
class GrowDisk:
    """Make the disk on the volume larger."""

    size: int


@dataclass(frozen=True, slots=True)
class Report:
    """Write the claim's status."""

    status: Object


@dataclass(frozen=True, slots=True)
class Rest:
    """Do nothing until something changes, and record an event with the reason, if any."""

    type: Literal["Normal", "Warning"] = "Normal"
    reason: str = ""
    message: str = ""


Step = Protect | Release | Reserve | Provision | Bind | Grow | GrowDisk | Report | Rest


def plan(seen: ClaimSnapshot, root: Path) -> Step:
    """Return the next step towards a bound claim, or towards its end; the first rule wins."""
    meta = seen.claim["metadata"]
    finalizers = tuple(meta.get("finalizers") or ())
    if "deletionTimestamp" in meta:
        if PROTECTION in finalizers and not seen.used:
            return Release(tuple(each for each in finalizers if each != PROTECTION))
        return Rest()
    if PROTECTION not in finalizers:
        return Protect((*finalizers, PROTECTION))
    if seen.volume is not None:
        return _towards(seen, seen.volume)
    if name := seen.claim["spec"].get("volumeName"):
        return _without(seen.claim, name)
    return _find(seen, root)


def _find(seen: ClaimSnapshot, root: Path) -> Step:
    claim, storage_class = seen.claim, seen.storage_class
    if storage.waits(storage_class) and not _has_consumer(seen):
        why = "waiting for first consumer to be created before binding"
        return Rest("Normal", storage.WAIT, why)
    if (found := best(claim, seen.others)) is not None:
        return Reserve(found, claim_reference(claim))
    name = storage.class_of(claim)
    if not name:
        why = "no persistent volumes available for this claim and no storage class is set"
        return Rest("Normal", "FailedBinding", why)
    if storage_class is None:
        why = f'storageclass.storage.k8s.io "{name}" not found'
        return Rest("Warning", "ProvisioningFailed", why)
    if not storage.is_ours(storage_class):
        why = f"waiting for the provisioner {storage_class.get('provisioner')} to make a volume"
        return Rest("Normal", "ExternalProvisioning", why)
    if why := objection(claim, seen.no_devices):
        return Rest("Warning", "ProvisioningFailed", why)
    return Provision(volume_for(claim, storage_class, root))


def _has_consumer(seen: ClaimSnapshot) -> bool:
    annotations = seen.claim["metadata"].get("annotations") or {}
    return (
        seen.scheduled
        or bool(annotations.get(SELECTED_NODE))
        or annotations.get(BIND_AT_ONCE) == "true"
    )


def _towards(seen: ClaimSnapshot, volume: Object) -> Step:
    """Bind the claim to a volume that is its own, or may become so."""
    claim, name = seen.claim, volume["metadata"]["name"]
    if not held_by(volume, claim):
        if "claimRef" in volume["spec"] and not promised_to(volume, claim):
            return _without(claim, name)
        if "deletionTimestamp" in volume["metadata"]:
            return _without(claim, name)
        if why := _mismatch(claim, volume):
            return Rest("Warning", "VolumeMismatch", why)
        return Reserve(volume, claim_reference(claim))
    if status_of(volume).get("phase") != "Bound":
        return Rest()  # its own controller makes it ready, and that wakes us
    annotations = claim["metadata"].get("annotations") or {}
    if claim["spec"].get("volumeName") != name or annotations.get(BIND_COMPLETED) != "yes":
        return Bind(name)
    if storage.size(claim) > capacity(volume) and seen.storage_class is not None:
        if not is_ours(volume):
            why = f"waiting for the provisioner of volume {name} to expand it"
            return Rest("Normal", "ExternalExpanding", why)
        return Grow(str(storage.size(claim)))
    status = bound_status(claim, volume)
    size = whole(min(storage.size(claim), capacity(volume)).bytes)
    if seen.disk is not None and seen.disk < size:
        # The condition comes first and the capacity last, because users of the disk rely on it.
        current = status_of(claim)
        if conditions.is_true(current.get("conditions"), RESIZING):
            return GrowDisk(size)
        return Report({**status, "capacity": current.get("capacity"), "conditions": [resizing()]})
    return Rest() if status == claim.get("status") else Report(status)


def _mismatch(claim: Object, volume: Object) -> str:
    """Return why the volume a claim names cannot be had, or nothing."""
    name = volume["metadata"]["name"]
    if capacity(volume) < storage.size(claim):
        return f'requested PV "{name}" is too small'
    if storage.class_of(claim) != (volume["spec"].get("storageClassName") or ""):
        return f'storageClassName of requested PV "{name}" does not match'
    if mode(claim) != mode(volume):
        return f'volumeMode of requested PV "{name}" does not match'
    wanted, offered = claim["spec"].get("accessModes") or (), volume["spec"].get("accessModes")
    if not set(wanted) <= set(offered or ()):
        return f'accessModes of requested PV "{name}" do not match'
    return ""


def _without(claim: Object, name: str) -> Step:
    """The volume the claim names is missing or another's: lost if it once was ours."""
    annotations = claim["metadata"].get("annotations") or {}
    if annotations.get(BIND_COMPLETED) != "yes":
        why = f'waiting for volume "{name}", which is missing or promised to another claim'
        return Rest("Normal", "FailedBinding", why)
    if status_of(claim).get("phase") != "Lost":
        return Report({"phase": "Lost"})
    why = f'volume "{name}" is gone or another\'s; what was on it is lost'
    return Rest("Warning", "ClaimLost", why)


def bound_status(claim: Object, volume: Object) -> Object:
    """Return the status of a claim that has its volume."""
    status: dict[str, Any] = {**status_of(claim), "phase": "Bound"}
    status["accessModes"] = list(volume["spec"].get("accessModes") or ())
    status["capacity"] = dict(volume["spec"].get("capacity") or {})
    status.pop("conditions", None)  # they are all of a growth that has ended
    return status


def resizing() -> Condition:
    """Return the condition of a claim whose disk is being made larger."""
    return conditions.condition(RESIZING, True, message="the disk is made larger")
