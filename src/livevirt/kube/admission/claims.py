"""PersistentVolumeClaims: a request for storage that may later only grow."""

from __future__ import annotations

import copy

from livevirt.kube.admission import limit_ranges
from livevirt.kube.admission.pod_validation import changed_fields
from livevirt.kube.objects.core import CLAIM, STORAGE_CLASS
from livevirt.kube.objects.field_checks import immutable
from livevirt.kube.objects.field_error import (
    FieldError,
    forbidden,
)
from livevirt.kube.objects.pod_resources import round_up
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.refusals import forbidden as refused
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.review import Reader, Review, Rules
from livevirt.kube.objects.storage import (
    CLASS_ANNOTATION,
    class_of,
    default_class,
    size,
    spec_errors,
)

_IMMUTABLE = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName "
    "for bound claims"
)


class ClaimRules(Rules):
    """What a PersistentVolumeClaim must be."""

    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """Ask for a filesystem unless the claim sets another mode."""
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
            limit_ranges.check(review)
            if old is not None:
                check_growth(new, old, review.read)
        return found


def check_growth(new: Object, old: Object, read: Reader) -> None:
    """Refuse to grow a claim whose class does not allow it."""
    if size(new) <= size(old) or status_of(old).get("phase") != "Bound":
        return
    class_name = class_of(new)
    found = read.get(STORAGE_CLASS, class_name) if class_name else None
    if found is None or not found.get("allowVolumeExpansion"):
        why = (
            "only dynamically provisioned pvc can be resized and the storageclass that "
            "provisions the pvc must support resize"
        )
        raise refused(CLAIM, new["metadata"]["name"], why)


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
    bound = status_of(old).get("phase") == "Bound"
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
        capacity = (status_of(old).get("capacity") or {}).get("storage")
        if capacity is None or size(new) < parse(capacity):
            path = "spec.resources.requests.storage"
            found.append(forbidden(path, "field can not be less than status.capacity"))
    return found
