"""PersistentVolumes, whose source never changes, and StorageClasses, which make them."""

from __future__ import annotations

from livevirt.kube.objects import names
from livevirt.kube.objects.field_checks import (
    immutable,
    named,
    one_of,
    optional_one_of,
    single_source,
)
from livevirt.kube.objects.field_error import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from livevirt.kube.objects.pod_resources import round_up
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.review import Review, Rules
from livevirt.kube.objects.scheduling_validation import node_selector_errors
from livevirt.kube.objects.schema import definitions
from livevirt.kube.objects.storage import VOLUME_MODES, access_mode_errors, positive
from livevirt.kube.objects.times import format_time

RECLAIM_POLICIES = frozenset({"Delete", "Recycle", "Retain"})


class VolumeRules(Rules):
    """What a PersistentVolume must be."""

    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """Keep the data when the claim goes, and hold a filesystem, by default."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        spec.setdefault("volumeMode", "Filesystem")
        round_up(spec.get("capacity"))
        if (host_path := spec.get("hostPath")) is not None:
            host_path.setdefault("type", "")
        obj.setdefault("status", {}).setdefault("phase", "Pending")

    def prepare(self, review: Review) -> None:
        """Start as Pending and note when the phase changes."""
        new, old = review.new, review.old
        if old is None:
            new["status"] = {"phase": "Pending", "lastPhaseTransitionTime": format_time(review.now)}
            return
        before, status = status_of(old), new["status"]
        since = "lastPhaseTransitionTime"
        if status.get("phase") != before.get("phase") and status.get(since) == before.get(since):
            status[since] = format_time(review.now)

    def validate(self, review: Review) -> list[FieldError]:
        """List what is wrong with the volume, and changes of what it stands for."""
        new, old = review.new, review.old
        found = _spec_errors(new["spec"])
        if old is not None:
            found += _update_errors(new["spec"], old["spec"])
        return found


def _spec_errors(spec: Object) -> list[FieldError]:
    found = access_mode_errors("spec.accessModes", spec.get("accessModes") or [])
    capacity = spec.get("capacity") or {}
    if not capacity:
        found.append(required("spec.capacity"))
    elif capacity.keys() != {"storage"}:
        found.append(not_supported("spec.capacity", capacity, ["storage"]))
    for resource, value in capacity.items():
        found += positive(f"spec.capacity[{resource}]", resource, value)
    found += one_of(
        "spec.persistentVolumeReclaimPolicy",
        spec.get("persistentVolumeReclaimPolicy", ""),
        RECLAIM_POLICIES,
    )
    found += single_source("spec", spec, _sources())
    if spec.get("local") is not None:
        if not spec["local"].get("path"):
            found.append(required("spec.local.path"))
        if not spec.get("nodeAffinity"):
            found.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    if spec.get("hostPath") is not None and not spec["hostPath"].get("path"):
        found.append(required("spec.hostPath.path"))
    if (wanted := (spec.get("nodeAffinity") or {}).get("required")) is not None:
        found += node_selector_errors("spec.nodeAffinity.required", wanted)
    found += named(
        "spec.storageClassName",
        spec.get("storageClassName", ""),
        names.validate_dns1123_subdomain,
        needed=False,
    )
    return found + optional_one_of("spec.volumeMode", spec.get("volumeMode"), VOLUME_MODES)


def _update_errors(new: Object, old: Object) -> list[FieldError]:
    found = []
    if any(new.get(source) != old.get(source) for source in _sources()):
        why = "spec.persistentvolumesource is immutable after creation"
        found.append(forbidden("spec.persistentvolumesource", why))
    found += immutable("spec.volumeMode", new.get("volumeMode"), old.get("volumeMode"))
    if old.get("nodeAffinity") is not None:
        found += immutable("spec.nodeAffinity", new.get("nodeAffinity"), old["nodeAffinity"])
    return found


def _sources() -> list[str]:
    return list(definitions()["core.PersistentVolumeSource"].fields)


# ---------------------------------------------------------------- StorageClasses

CLASS_RECLAIM_POLICIES = frozenset({"Delete", "Retain"})
BINDING_MODES = frozenset({"Immediate", "WaitForFirstConsumer"})


class StorageClassRules(Rules):
    """What a StorageClass must be."""

    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """Delete volumes with their claims and make them at once, by default."""
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def validate(self, review: Review) -> list[FieldError]:
        """List what is wrong with the class, and changes of what it does."""
        new, old = review.new, review.old
        provisioner = new.get("provisioner", "")
        found = named(
            "provisioner", provisioner, lambda name: names.validate_qualified_name(name.lower())
        )
        found += [
            invalid(f"parameters[{key}]", key, "field can not be empty.")
            for key in new.get("parameters") or ()
            if not key
        ]
        found += one_of("reclaimPolicy", new.get("reclaimPolicy", ""), CLASS_RECLAIM_POLICIES)
        found += one_of("volumeBindingMode", new.get("volumeBindingMode", ""), BINDING_MODES)
        if old is not None:
            found += [
                forbidden(field, f"updates to {field} are forbidden.")
                for field in ("parameters", "provisioner", "reclaimPolicy")
                if new.get(field) != old.get(field)
            ]
            found += immutable(
                "volumeBindingMode", new.get("volumeBindingMode"), old.get("volumeBindingMode")
            )
        return found
