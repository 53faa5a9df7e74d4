"""Claims and storage classes: what is read off them, and what is wrong with a claim's spec."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from livevirt.kube.objects import names
from livevirt.kube.objects.field_checks import POSITIVE, named, optional_one_of, quantity
from livevirt.kube.objects.field_error import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.scheduling_validation import label_selector_errors

ACCESS_MODES = frozenset({"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"})
VOLUME_MODES = frozenset({"Block", "Filesystem"})
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
DEFAULT_ANNOTATION = "storageclass.kubernetes.io/is-default-class"
_OLD_DEFAULT_ANNOTATION = "storageclass.beta.kubernetes.io/is-default-class"
PROTECTION = "kubernetes.io/pvc-protection"
BIND_AT_ONCE = "cdi.kubevirt.io/storage.bind.immediate.requested"
CLASS_NAME = "livevirt"
PROVISIONER = "livevirt.io/directory"
WAIT = "WaitForFirstConsumer"
#: Every logical node is this machine and sees the same directories, so all may share a volume.
PROVISIONED_ACCESS_MODES = ("ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany")
VOLUME_MODE = "Filesystem"  # unless a claim asks for a block device


@dataclass(frozen=True, slots=True)
class ClaimUser:
    """Something that has a claim."""

    what: str  # "pod ns/name"
    node: str  # empty until it has one
    read_only: bool


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


def size(claim: Object) -> Quantity:
    """Return how much storage the claim asks for."""
    asked = (claim["spec"].get("resources") or {}).get("requests") or {}
    return parse(asked.get("storage", "0"))


def class_of(claim: Object) -> str:
    """Return the storage class the claim names, also by the old annotation."""
    annotations = claim["metadata"].get("annotations") or {}
    return annotations.get(CLASS_ANNOTATION) or claim["spec"].get("storageClassName") or ""


def default_class(classes: Iterable[Object]) -> Object | None:
    """Return the class marked as the default; of several the newest, then the first by name."""
    marked = [each for each in classes if _is_default(each)]
    marked.sort(key=lambda each: str(each["metadata"]["name"]))
    marked.sort(key=lambda each: str(each["metadata"].get("creationTimestamp", "")), reverse=True)
    return marked[0] if marked else None


def _is_default(storage_class: Object) -> bool:
    annotations = storage_class["metadata"].get("annotations") or {}
    return "true" in (
        annotations.get(DEFAULT_ANNOTATION),
        annotations.get(_OLD_DEFAULT_ANNOTATION),
    )


def is_ours(storage_class: Object) -> bool:
    """Return whether volumes of the class are made by us."""
    return bool(storage_class.get("provisioner") == PROVISIONER)


def waits(storage_class: Object | None) -> bool:
    """Return whether claims of the class are bound only when something uses them."""
    return storage_class is not None and storage_class.get("volumeBindingMode") == WAIT
