"""Which `metadata` an object may be created or updated with.

The rules, their order and their messages are those every Kubernetes kind shares. Times, numbers and
maps are expected to have the right JSON types already. Defaults (name generation, the resource
version of an unconditional update, fields the server owns) are filled in before asking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from livevirt.kube.objects import field_error, names, times
from livevirt.kube.objects.field_error import FieldError, Struct

ANNOTATIONS_MAX = 256 * 1024
FIELD_MANAGER_MAX = 128
SUBRESOURCE_MAX = 256
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
STANDARD_FINALIZERS = frozenset({"kubernetes", ORPHAN, FOREGROUND})

_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")

Meta = Mapping[str, Any]


def validate(meta: Meta, *, namespaced: bool, name_rule: names.NameRule) -> list[FieldError]:
    """What is wrong with the metadata of a new object whose name has been generated."""
    found = _name_errors(meta, name_rule)
    found += _namespace_errors(meta.get("namespace") or "", namespaced)
    found += _generation_errors(meta)
    # Asked first, as most objects have few of these and every write comes by here.
    if labels := meta.get("labels"):
        found += validate_labels(labels, "metadata.labels")
    if annotations := meta.get("annotations"):
        found += validate_annotations(annotations, "metadata.annotations")
    if owners := meta.get("ownerReferences"):
        found += _owner_errors(owners)
    if finalizers := meta.get("finalizers"):
        found += _finalizer_errors(finalizers)
    if entries := meta.get("managedFields"):
        found += _managed_fields_errors(entries)
    return found


def validate_update(new: Meta, old: Meta) -> list[FieldError]:
    """What is wrong with the metadata an existing object is to get."""
    found = []
    added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
    if old.get("deletionTimestamp") and added:
        listed = ", ".join(map(field_error.quote, added))
        found.append(
            field_error.forbidden(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}",
            )
        )
    if not new.get("resourceVersion"):
        found.append(
            field_error.invalid("metadata.resourceVersion", "", "must be specified for an update")
        )
    found += _generation_errors(new)
    if (generation := new.get("generation") or 0) < (old.get("generation") or 0):
        found.append(
            field_error.invalid("metadata.generation", generation, "must not be decremented")
        )
    found += _immutable_errors(new, old)
    found += validate_labels(new.get("labels"), "metadata.labels")
    found += validate_annotations(new.get("annotations"), "metadata.annotations")
    found += _owner_errors(new.get("ownerReferences") or ())
    found += _managed_fields_errors(new.get("managedFields") or ())
    return found


def validate_core_finalizers(meta: Meta) -> list[FieldError]:
    """What is wrong with finalizers of a built-in kind; custom resources may have bare names."""
    if not meta.get("finalizers"):
        return []
    return [
        field_error.invalid(
            f"metadata.finalizers[{at}]",
            finalizer,
            "name is neither a standard finalizer name nor is it fully qualified",
        )
        for at, finalizer in enumerate(meta["finalizers"])
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS
    ]


def validate_labels(labels: Mapping[str, str] | None, path: str) -> list[FieldError]:
    """What is wrong with a map of labels, by key."""
    found = []
    for key, value in sorted((labels or {}).items()):
        for why in names.validate_label_key(key):
            found.append(field_error.invalid(path, key, why))
        for why in names.validate_label_value(value):
            found.append(field_error.invalid(path, value, why))
    return found


def validate_annotations(annotations: Mapping[str, str] | None, path: str) -> list[FieldError]:
    """What is wrong with a map of annotations, by key, and whether it is too large."""
    carried = annotations or {}
    found = [
        field_error.invalid(path, key, why)
        for key in sorted(carried)
        for why in names.validate_annotation_key(key)
    ]
    size = sum(_size(key) + _size(value) for key, value in carried.items())
    if size > ANNOTATIONS_MAX:
        found.append(field_error.too_long(path, ANNOTATIONS_MAX))
    return found


def validate_field_manager(manager: str, path: str) -> list[FieldError]:
    """What is wrong with the name of a field manager."""
    if manager.isascii() and manager.isprintable() and len(manager) <= FIELD_MANAGER_MAX:
        return []
    found = []
    if _size(manager) > FIELD_MANAGER_MAX:
        found.append(field_error.too_long(path, FIELD_MANAGER_MAX))
    at = 0
    for char in manager:
        if not char.isprintable():
            why = f"invalid character U+{ord(char):04X} (at position {at})"
            found.append(field_error.invalid(path, manager, why))
        at += _size(char)
    return found


def _name_errors(meta: Meta, name_rule: names.NameRule) -> list[FieldError]:
    prefix, name = meta.get("generateName") or "", meta.get("name") or ""
    found = []
    if prefix:
        complaints = name_rule(names.as_name(prefix))
        found += [field_error.invalid("metadata.generateName", prefix, why) for why in complaints]
    if not name:
        found.append(field_error.required("metadata.name", "name or generateName is required"))
    else:
        found += [field_error.invalid("metadata.name", name, why) for why in name_rule(name)]
    return found


def _namespace_errors(namespace: str, namespaced: bool) -> list[FieldError]:
    path = "metadata.namespace"
    if not namespaced:
        return [field_error.forbidden(path, "not allowed on this type")] if namespace else []
    if not namespace:
        return [field_error.required(path)]
    complaints = names.validate_dns1123_label(namespace)
    return [field_error.invalid(path, namespace, why) for why in complaints]


def _generation_errors(meta: Meta) -> list[FieldError]:
    generation = meta.get("generation") or 0
    if generation >= 0:
        return []
    return [
        field_error.invalid("metadata.generation", generation, "must be greater than or equal to 0")
    ]


def _immutable_errors(new: Meta, old: Meta) -> list[FieldError]:
    found = []
    for key in ("name", "namespace", "uid"):
        if (value := new.get(key) or "") != (old.get(key) or ""):
            found.append((key, value))
    for key in ("creationTimestamp", "deletionTimestamp"):
        if (time := _time(new.get(key))) != _time(old.get(key)):
            found.append((key, time))
    key = "deletionGracePeriodSeconds"
    if new.get(key) != old.get(key):
        found.append((key, new.get(key)))
    return [
        field_error.invalid(f"metadata.{key}", value, "field is immutable") for key, value in found
    ]


def _time(text: str | None) -> str | None:
    """The time in its one spelling, so that the same moment compares equal."""
    return times.normalise_time(text) if text else None


def _owner_errors(owners: Sequence[Meta]) -> list[FieldError]:
    path = "metadata.ownerReferences"
    found = []
    controller = ""
    for at, owner in enumerate(owners):
        found += _one_owner_errors(owner, f"{path}[{at}]")
        if not owner.get("controller"):
            continue
        name = f"{owner.get('kind', '')}/{owner.get('name', '')}"
        if controller:
            found.append(
                field_error.invalid(
                    path,
                    [_as_struct(each) for each in owners],
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {name}',
                )
            )
        controller = controller or name
    return found


def _one_owner_errors(owner: Meta, path: str) -> list[FieldError]:
    found = []
    api_version, kind = owner.get("apiVersion") or "", owner.get("kind") or ""
    if not api_version:
        found.append(field_error.required(f"{path}.apiVersion", "must not be empty"))
    elif api_version.count("/") > 1 or api_version.endswith("/"):
        found.append(
            field_error.invalid(
                f"{path}.apiVersion", api_version, "must be <group>/<version> or <version>"
            )
        )
    found += [
        field_error.required(f"{path}.{key}", "must not be empty")
        for key in ("kind", "name", "uid")
        if not owner.get(key)
    ]
    if kind == "Event" and api_version.removeprefix("/") == "v1":
        found.append(
            field_error.invalid(
                path, _as_struct(owner), "/v1, Kind=Event is disallowed from being an owner"
            )
        )
    return found


def _as_struct(owner: Meta) -> Struct:
    shown = Struct({key: owner.get(key) or "" for key in _OWNER_FIELDS[:4]})
    shown.update({key: owner[key] for key in _OWNER_FIELDS[4:] if owner.get(key) is not None})
    return shown


def _finalizer_errors(finalizers: Sequence[str]) -> list[FieldError]:
    path = "metadata.finalizers"
    found = [
        field_error.invalid(path, finalizer, why)
        for finalizer in finalizers
        for why in names.validate_finalizer(finalizer)
    ]
    if ORPHAN in finalizers and FOREGROUND in finalizers:
        why = f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"
        found.append(field_error.invalid(path, list(finalizers), why))
    return found


def _managed_fields_errors(entries: Sequence[Meta]) -> list[FieldError]:
    found = []
    for at, entry in enumerate(entries):
        path = f"metadata.managedFields[{at}]"
        operation, fields_type = entry.get("operation") or "", entry.get("fieldsType") or ""
        if not operation:
            found.append(field_error.required(f"{path}.operation", "must not be empty"))
        elif operation not in ("Apply", "Update"):
            found.append(
                field_error.not_supported(f"{path}.operation", operation, ["Apply", "Update"])
            )
        if fields_type not in ("", "FieldsV1"):
            found.append(
                field_error.invalid(f"{path}.fieldsType", fields_type, "must be `FieldsV1`")
            )
        found += validate_field_manager(entry.get("manager") or "", f"{path}.manager")
        if _size(entry.get("subresource") or "") > SUBRESOURCE_MAX:
            found.append(field_error.too_long(f"{path}.subresource", SUBRESOURCE_MAX))
    return found


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))
