"""How the values of a kind merge in server-side apply, made from its schema.

A struct merges by field and a map by key. A list merges by the keys of its items, as a set of
values, or not at all: an atomic value is owned and replaced as a whole. Where a custom resource
takes any fields, objects merge by key and lists are atomic.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from livevirt.kube.objects.crds import mergeable
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.schema import Field, Type, definitions
from livevirt.kube.objects.typed import decode

STRUCT, MAP, KEYED, SET = "struct", "map", "keyed", "set"
SCALAR, ATOMIC, UNTYPED, IGNORED = "scalar", "atomic", "untyped", "ignored"

#: Metadata that belongs to the server or names the object: it has no owner.
_UNOWNED = (
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields",
    "resourceVersion",
)  # fmt: skip


@dataclass(slots=True, eq=False)
class MergeType:
    """How a value merges. Compared by identity."""

    form: str
    #: Path element and type of each field of a struct.
    fields: dict[str, tuple[str, MergeType]] = field(default_factory=dict)
    element: MergeType | None = None  # of a map or list; of a struct that takes any fields
    keys: tuple[tuple[str, Any], ...] = ()  # of a list: name and default value, by name
    json: str = ""  # the JSON type of a scalar or atomic value; empty for any
    kept: bool = False  # never removed as a whole: it has fields without an owner
    leaf: bool = field(init=False)  # owned as a whole, whatever is in it

    def __post_init__(self) -> None:
        self.leaf = self.form in (SCALAR, ATOMIC)


_TEXT = MergeType(SCALAR, json="string")
_ANY_SCALAR = MergeType(SCALAR)
_UNTYPED = MergeType(UNTYPED)
_UNTYPED.element = _UNTYPED
_ATOMIC_LIST = MergeType(ATOMIC, json="array")
_ATOMIC_OBJECT = MergeType(ATOMIC, json="object")
_SCALARS = {
    "string": _TEXT, "bytes": _TEXT, "time": _TEXT, "microtime": _TEXT, "duration": _TEXT,
    "nullable-time": _TEXT, "integer": MergeType(SCALAR, json="number"),
    "number": MergeType(SCALAR, json="number"), "boolean": MergeType(SCALAR, json="boolean"),
}  # fmt: skip
_KEY_DEFAULTS: dict[str, Any] = {"string": "", "integer": 0}


@functools.cache
def of_kind(kind: Kind, version: str) -> MergeType:
    """Return how objects of a kind merge in a version."""
    type_ = kind.schema(version)
    builder = _Custom() if kind.custom else _BuiltIn()
    found = builder.struct(type_, type_)
    root = MergeType(STRUCT, dict(found.fields))
    metadata = _BuiltIn().of(definitions()["meta.ObjectMeta"])
    owned = MergeType(STRUCT, dict(metadata.fields), kept=True)
    for name in _UNOWNED:
        path, inner = owned.fields[name]
        owned.fields[name] = (path, MergeType(IGNORED, json=inner.json))
    root.fields["metadata"] = ("f:metadata", owned)
    for name in ("apiVersion", "kind"):
        root.fields[name] = (f"f:{name}", MergeType(IGNORED, json="string"))
    return root


@functools.cache
def empty_object(kind: Kind, version: str) -> Object:
    """Return what a new object is compared with: the fields that are always there."""
    if kind.custom:
        return {"metadata": {}}
    return {"metadata": {}, **decode(kind.schema(version), {}, [])}


class _BuiltIn:
    """Makes the types of built-in kinds."""

    anything = MergeType(ATOMIC)

    def __init__(self) -> None:
        self._made: dict[int, MergeType] = {}

    def of(self, type_: Type) -> MergeType:
        """Return how a value of a type merges unless its field is different."""
        if scalar := _SCALARS.get(type_.form):
            return scalar
        match type_.form:
            case "object":
                return _ATOMIC_OBJECT if type_.atomic else self.struct(type_, type_)
            case "map":
                assert type_.element is not None
                return MergeType(MAP, element=self.of(type_.element))
            case "list":
                return _ATOMIC_LIST
            case "object-any" | "any":
                return self.anything
            case _:
                return _ANY_SCALAR

    def struct(self, type_: Type, fields_of: Type) -> MergeType:
        """Return the struct of an object type, which may contain itself."""
        made = self._made.get(id(type_))
        if made is None:
            made = self._made[id(type_)] = MergeType(STRUCT)
            made.fields = {
                name: (f"f:{name}", self.field(entry)) for name, entry in fields_of.fields.items()
            }
        return made

    def field(self, entry: Field) -> MergeType:
        """Return how a field merges."""
        type_ = entry.type
        element = type_.element
        if type_.form == "list" and element is not None:
            if entry.keys and self.merges(entry):
                return MergeType(KEYED, element=self.of(element), keys=self.keys(entry, element))
            return MergeType(SET, element=self.of(element)) if entry.set else _ATOMIC_LIST
        if entry.atomic:
            return _ATOMIC_OBJECT
        if entry.granular and type_.form == "object":
            return self.struct(type_, type_)
        return self.of(type_)

    def merges(self, entry: Field) -> bool:
        """Return whether a list with keys is merged by them."""
        return True

    def keys(self, entry: Field, element: Type) -> tuple[tuple[str, Any], ...]:
        """Return the keys of a list with their defaults, None where there is none."""
        return tuple((name, self.key_default(element.fields[name])) for name in sorted(entry.keys))

    def key_default(self, key: Field) -> Any:
        """Return what a missing key of an item means."""
        return _KEY_DEFAULTS.get(key.type.form) if key.default is None else key.default


class _Custom(_BuiltIn):
    """Makes the types of custom resources, as their CustomResourceDefinitions define them."""

    anything = _UNTYPED

    def field(self, entry: Field) -> MergeType:
        """Return how a field merges."""
        if entry.type.name.endswith(".ObjectMeta"):
            return _UNTYPED
        found = super().field(entry)
        if entry.open and found.form == STRUCT:
            return MergeType(STRUCT, found.fields, element=_UNTYPED)
        return found

    def merges(self, entry: Field) -> bool:
        """Return whether a list with keys is merged by them."""
        return mergeable(entry)

    def key_default(self, key: Field) -> Any:
        """Return what a missing key of an item means."""
        return key.default
