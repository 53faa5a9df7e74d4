"""PersistentVolumeClaims: a wish for storage that may later only grow."""

from __future__ import annotations

import copy

from livevirt.kube.admission import limits
from livevirt.kube.admission.pod_validation import changed_fields
from livevirt.kube.admission.storageclasses import default_class
from livevirt.kube.objects import names
from livevirt.kube.objects.core import CLAIM, STORAGE_CLASS
from livevirt.kube.objects.field_checks import POSITIVE, immutable, named, optional_one_of, quantity
from livevirt.kube.objects.field_error import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.refusal import forbidden as refused
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.resource_lists import round_up
from livevirt.kube.objects.review import Reader, Review, Rules
from livevirt.kube.objects.scheduling_validation import label_selector_errors

ACCESS_MODES = frozenset({"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"})
VOLUME_MODES = frozenset({"Block", "Filesystem"})
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_IMMUTABLE = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName "
    "for bound claims"
)


class ClaimRules(Rules):
    """What a PersistentVolumeClaim must be."""

    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """Ask for a filesystem unless told otherwise."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("volumeMode", "Filesystem")
        for side in ("requests", "limits"):
            round_up((spec.get("resources") or {}).get(side))
        obj.setdefault("status", {}).setdefault("phase", "Pending")

    def prepare(self, review: Review) -> None:
        """Start as Pending, in the default class where none is named."""
        new = review.new
        if review.old is None:
            new["status"] = {"phase": "Pending"}
            _same_source_twice(new["spec"])
            _choose_class(new, review.read)

    def validate(self, review: Review) -> list[FieldError]:
        """List what is wrong with the claim; refuse a right one its surroundings forbid."""
        new, old = review.new, review.old
        if review.subresource:
            return []
        found = spec_errors("spec", new["spec"])
        if old is not None:
            found += _update_errors(new, old)
        if not found:
            limits.check(review)
            if old is not None:
                check_growth(new, old, review.read)
        return found


def spec_errors(path: str, spec: Object) -> list[FieldError]:
    """List what is wrong with a claim's spec."""
    found = access_mode_errors(f"{path}.accessModes", spec.get("accessModes") or [])
    if (selector := spec.get("selector")) is not None:
        found += label_selector_errors(f"{path}.selector", selector)
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    at_size = f"{path}.resources[storage]"
    if size is None:
        found.append(required(at_size))
    else:
        found += positive(at_size, "storage", size)
    class_name = spec.get("storageClassName") or ""
    found += named(
        f"{path}.storageClassName", class_name, names.validate_dns1123_subdomain, needed=False
    )
    found += optional_one_of(f"{path}.volumeMode", spec.get("volumeMode"), VOLUME_MODES)
    for field in ("dataSource", "dataSourceRef"):
        if (source := spec.get(field)) is not None:
            found += [
                required(f"{path}.{field}.{key}") for key in ("kind", "name") if not source.get(key)
            ]
    return found


def access_mode_errors(path: str, modes: list[str]) -> list[FieldError]:
    """List unknown or contradicting access modes, or that there is none."""
    if not modes:
        return [required(path, "at least 1 access mode is required")]
    found = [not_supported(path, m, sorted(ACCESS_MODES)) for m in modes if m not in ACCESS_MODES]
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        why = "may not use ReadWriteOncePod with other access modes"
        found.append(forbidden(path, why))
    return found


def positive(path: str, resource: str, value: str) -> list[FieldError]:
    """List what keeps an amount from being one of storage."""
    found = quantity(path, resource, value)
    if parse(value).nano <= 0:
        found.append(invalid(path, value, POSITIVE))
    return found


def check_growth(new: Object, old: Object, read: Reader) -> None:
    """Refuse to grow a claim whose class does not allow it."""
    if size(new) <= size(old) or (old.get("status") or {}).get("phase") != "Bound":
        return
    class_name = class_of(new)
    found = read.get(STORAGE_CLASS, class_name) if class_name else None
    if found is None or not found.get("allowVolumeExpansion"):
        why = (
            "only dynamically provisioned pvc can be resized and the storageclass that "
            "provisions the pvc must support resize"
        )
        raise refused(CLAIM, new["metadata"]["name"], why)


def size(claim: Object) -> Quantity:
    """Return how much storage the claim asks for."""
    asked = (claim["spec"].get("resources") or {}).get("requests") or {}
    return parse(asked.get("storage", "0"))


def class_of(claim: Object) -> str:
    """Return the storage class the claim names, also by the old annotation."""
    annotations = claim["metadata"].get("annotations") or {}
    return annotations.get(CLASS_ANNOTATION) or claim["spec"].get("storageClassName") or ""


def _choose_class(claim: Object, read: Reader) -> None:
    annotations = claim["metadata"].get("annotations") or {}
    if "storageClassName" in claim["spec"] or CLASS_ANNOTATION in annotations:
        return
    if chosen := default_class(read.list(STORAGE_CLASS)):
        claim["spec"]["storageClassName"] = chosen["metadata"]["name"]


def _same_source_twice(spec: Object) -> None:
    """Fill in the older or the newer of the two ways to name where the data comes from."""
    source, ref = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and ref is None:
        spec["dataSourceRef"] = dict(source)
    elif source is None and ref is not None and not ref.get("namespace"):
        spec["dataSource"] = {key: v for key, v in ref.items() if key != "namespace"}


def _update_errors(new: Object, old: Object) -> list[FieldError]:
    after, before = copy.deepcopy(new["spec"]), old["spec"]
    bound = (old.get("status") or {}).get("phase") == "Bound"
    for field in ("volumeName", "storageClassName"):  # may be set once
        if not before.get(field) and field in after and field not in before:
            del after[field]
    if bound:
        asked = (before.get("resources") or {}).get("requests") or {}
        after["resources"] = {**(after.get("resources") or {}), "requests": asked}
        before = {**before, "resources": {**(before.get("resources") or {}), "requests": asked}}
        for spec in (after, before):
            spec.pop("volumeAttributesClassName", None)
    found = immutable("spec.volumeMode", after.get("volumeMode"), before.get("volumeMode"))
    if changed := changed_fields(after, before):
        found.append(forbidden("spec", f"{_IMMUTABLE}; changed: {', '.join(changed)}"))
    elif size(new) < size(old):
        capacity = ((old.get("status") or {}).get("capacity") or {}).get("storage")
        if capacity is None or size(new) < parse(capacity):
            path = "spec.resources.requests.storage"
            found.append(forbidden(path, "field can not be less than status.capacity"))
    return found
