"""CustomResourceDefinitions of our custom kinds, made from the kinds and the schema tables.

The embedded server shows them to `kubectl get crd`, and `livevirt crds` prints them for a real
kube-apiserver. Their schemas are structural: no references, a type everywhere, and map lists only
where every key is a required field.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from livevirt.kube.objects.kind import Column, Kind
from livevirt.kube.objects.schema import Field, Type, merging
from livevirt.kube.objects.structural import QUANTITY

Object = dict[str, Any]

_UIDS = uuid.UUID("6f3a8b0e-52f5-5d0a-9a52-0d1f6a0f7c11")
_INT_OR_STRING: Object = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_PRESERVE: Object = {"x-kubernetes-preserve-unknown-fields": True}
_PLAIN: dict[str, Object] = {
    "quantity": {**_INT_OR_STRING, "pattern": f"^{QUANTITY.pattern}$"},
    "intorstring": _INT_OR_STRING,
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "nullable-time": {"type": "string", "format": "date-time", "nullable": True},
    "duration": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "any": _PRESERVE,
    "object-any": {"type": "object", **_PRESERVE},
}


def definitions(kinds: Iterable[Kind]) -> list[Object]:
    """Return the definition of every custom kind, as one would write it in a file."""
    return [definition(kind) for kind in kinds if kind.custom]


def definition(kind: Kind) -> Object:
    """Return the definition of one custom kind, without status."""
    names: Object = {
        "plural": kind.plural,
        "singular": kind.singular,
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
    }
    if kind.short:
        names["shortNames"] = list(kind.short)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(kind, version) for version in kind.versions],
            "conversion": {"strategy": "None"},
        },
    }


def established(kind: Kind, created: str, resource_version: str) -> Object:
    """Return the definition as a server shows it that serves the kind since `created`."""
    shown = definition(kind)
    shown["metadata"] |= {
        "uid": str(uuid.uuid5(_UIDS, kind.resource)),
        "resourceVersion": resource_version,
        "generation": 1,
        "creationTimestamp": created,
    }
    shown["status"] = {
        "conditions": [
            {
                "type": type_,
                "status": "True",
                "lastTransitionTime": created,
                "reason": reason,
                "message": message,
            }
            for type_, reason, message in (
                ("NamesAccepted", "NoConflicts", "no other kind has these names"),
                ("Established", "InitialNamesAccepted", "the kind is served"),
            )
        ],
        "acceptedNames": shown["spec"]["names"],
        "storedVersions": [kind.stored_version],
    }
    return shown


def _version(kind: Kind, version: str) -> Object:
    found: Object = {
        "name": version,
        "served": True,
        "storage": version == kind.stored_version,
        "schema": {"openAPIV3Schema": _root(kind.schema(version))},
    }
    if kind.has_status:
        found["subresources"] = {"status": {}}
    if kind.columns:
        found["additionalPrinterColumns"] = [_column(column) for column in kind.columns]
    if kind.selectable:
        found["selectableFields"] = [{"jsonPath": f".{path}"} for path in kind.selectable]
    return found


def _column(column: Column) -> Object:
    found: Object = {"name": column.name, "type": column.type, "jsonPath": column.path}
    for name in ("format", "description", "priority"):
        if value := getattr(column, name):
            found[name] = value
    return found


def _root(type_: Type) -> Object:
    schema = _schema(type_, ())
    # The server has a schema of its own for these three and takes no other.
    own = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    return {**schema, "properties": {**schema["properties"], **own}}


def _schema(type_: Type, above: tuple[str, ...]) -> Object:
    match type_.form:
        case "object":
            if type_.name in above:
                raise ValueError(f"{type_.name} contains itself: it has no structural schema")
            return _object(type_, (*above, type_.name))
        case "list" if type_.element is not None:
            return {"type": "array", "items": _schema(type_.element, above)}
        case "map" if type_.element is not None:
            return {"type": "object", "additionalProperties": _schema(type_.element, above)}
        case form if form in _PLAIN:
            return dict(_PLAIN[form])
        case form:
            return {"type": form, "format": type_.format} if type_.format else {"type": form}


def _object(type_: Type, above: tuple[str, ...]) -> Object:
    schema: Object = {"description": type_.description} if type_.description else {}
    schema["type"] = "object"
    required = [entry.name for entry in type_.fields.values() if entry.required]
    if required:
        schema["required"] = required
    if type_.atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    if type_.fields:
        schema["properties"] = {
            name: _property(entry, above) for name, entry in type_.fields.items()
        }
    return schema


def _property(entry: Field, above: tuple[str, ...]) -> Object:
    if entry.type.name.endswith(".ObjectMeta"):
        # Metadata of a template. Tools write `creationTimestamp: null` into it.
        return {"type": "object", "nullable": True, **_PRESERVE}
    schema = _schema(entry.type, above)
    if entry.description:
        schema["description"] = entry.description
    if entry.enum:
        schema["enum"] = list(entry.enum)
    if entry.minimum is not None:
        schema["minimum"] = entry.minimum
    if entry.default is not None:
        schema["default"] = entry.default
    if mergeable(entry):
        schema |= merging(entry)
    if entry.open:
        schema |= _PRESERVE
    return schema


def mergeable(entry: Field) -> bool:
    """Return whether a real server takes the list's keys: each must be required."""
    element = entry.type.element
    return not entry.keys or (
        element is not None and all(element.fields[key].required for key in entry.keys)
    )
